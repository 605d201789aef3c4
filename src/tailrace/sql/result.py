"""The result of a statement: rows, or what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from tailrace.arguments import Between, checked
from tailrace.errors import NotFoundError
from tailrace.spark_sql.types import parse_type
from tailrace.sql.diagnostics import QueryText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.lake import Lake

# A statement, read and ready to run: on a lake, with the values of its parameters.
Run: TypeAlias = "Callable[[Lake, Mapping[str, Any]], Result]"
# As many as Spark takes for a number of rows.
Rows = Annotated[int, Between(0, 2**31 - 1)]


@checked
class Result:
    """The result of `lake.sql(…)`.

    A query's rows stay with Spark until they are asked for. Other statements have run by then; rows
    describe what they did.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        frame: DataFrame | None = None,
        rows: Sequence[Mapping[str, Any]] = (),
        kinds: Mapping[str, pa.DataType] | None = None,
        message: str = "",
        snapshot: int | None = None,
        text: str = "",
        query: QueryText | None = None,
    ) -> None:
        """Either a `frame`, or `rows` and the types of their columns."""
        self._lake, self._frame = lake, frame
        self._rows, self._kinds = rows, kinds or {}
        self._table: pa.Table | None = None
        self._query = query or QueryText(sql="", script="")
        self.message = message  # what was done, in a line; empty for what only reads
        self.snapshot = snapshot  # that a write created
        self.text = text  # the whole answer, where it is meant to be read as it is
        self.is_query = frame is not None  # whether Spark has to compute the rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._kinds) if not self.is_query else _unique(self.to_df().columns)

    def to_df(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        if self._frame is None:
            self._frame = self._lake.spark.createDataFrame(self.to_arrow())
        return self._frame

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        if self._table is None and self.is_query:
            with self._query.spark_faults():
                self._table = self.to_df().toArrow()
        elif self._table is None:
            schema = pa.schema(list(self._kinds.items()))
            self._table = pa.Table.from_pylist([dict(row) for row in self._rows], schema=schema)
        return self._table

    def to_pylist(self, limit: Rows | None = None) -> list[dict[str, Any]]:
        """The rows as dicts; with a limit, Spark computes no more of them."""
        if not self.is_query:
            return [dict(row) for row in self._rows[:limit]]
        if limit is None or self._table is not None:
            rows = self.to_arrow()
        else:
            with self._query.spark_faults():
                rows = self.to_df().limit(limit).toArrow()
        named = rows.rename_columns(_unique(rows.column_names))  # a dict has a name once
        dicts: list[dict[str, Any]] = named.slice(0, limit).to_pylist()
        return dicts

    def collect(self) -> list[Any]:
        """The rows, as Spark gives them."""
        with self._query.spark_faults():
            return list(self.to_df().collect())

    def show(self, limit: Rows = 20) -> None:
        """Print the first rows, as Spark does."""
        self.to_df().show(limit, truncate=False)

    def __repr__(self) -> str:
        return f"<tailrace.Result {self.message or ', '.join(self.columns)}>"


def _unique(names: Sequence[str]) -> list[str]:
    """The names, made unique: `id`, `id_2`."""
    unique: list[str] = []
    for name in names:
        number, other = 1, name
        while other in unique:
            number += 1
            other = f"{name}_{number}"
        unique.append(other)
    return unique


def done(
    lake: Lake,
    message: str,
    facts: Mapping[str, Any] | None = None,
    *,
    snapshot: int | None = None,
) -> Result:
    """What a statement did: a message for people, and one row of facts for programs."""
    row = {"message": message, "snapshot": snapshot, **(facts or {})}
    kinds = {name: _kind(value) for name, value in row.items()}
    return Result(lake, rows=[row], kinds=kinds, message=message, snapshot=snapshot)


def _kind(value: Any) -> pa.DataType:
    if isinstance(value, str):
        return pa.string()
    return pa.float64() if isinstance(value, float) else pa.int64()


def listed(
    lake: Lake,
    rows: Sequence[Mapping[str, Any]],
    kinds: Mapping[str, pa.DataType],
    *,
    text: str = "",
) -> Result:
    """Rows that the catalog gave."""
    return Result(lake, rows=rows, kinds=kinds, text=text)


def arrow_types(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The types of columns by their names in Spark."""
    return {name: parse_type(kind) for name, kind in columns.items()}


def exists(find: Callable[..., object], *names: str) -> bool:
    """Whether there is what a method of a lake looks for."""
    try:
        find(*names)
    except NotFoundError:
        return False
    return True


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
