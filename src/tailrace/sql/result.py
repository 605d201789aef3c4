"""What a statement gives: rows, or what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Result:
    """The result of `lake.sql(…)`.

    A query's rows stay with Spark until they are asked for. Other statements have run by now, and
    are described by one or several rows, too.
    """

    def __init__(
        self,
        *,
        spark: Callable[[], SparkSession],
        rows: pa.Table | None = None,
        frame: DataFrame | None = None,
        message: str = "",
        snapshot: int | None = None,
        text: str = "",
        shown: Shown | None = None,
    ) -> None:
        assert (rows is None) != (frame is None)
        self._spark, self._rows, self._frame = spark, rows, frame
        self._shown = shown or Shown(text="")
        self.message = message  # what was done, in a line; empty for what only reads
        self.snapshot = snapshot  # that a write created
        self.text = text  # the whole answer, where it is meant to be read as it is

    @property
    def is_query(self) -> bool:
        """Whether there are rows that Spark has to compute."""
        return self._frame is not None

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        if self._frame is not None:
            return list(self._frame.columns)
        assert self._rows is not None
        return list(self._rows.column_names)

    def to_df(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        if self._frame is None:
            self._frame = self._spark().createDataFrame(self._rows)
        return self._frame

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        if self._rows is None:
            assert self._frame is not None
            with self._shown.spark_faults():
                self._rows = self._frame.toArrow()
        return self._rows

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    def collect(self) -> list[Any]:
        """The rows, as Spark gives them."""
        with self._shown.spark_faults():
            return list(self.to_df().collect())

    def show(self, limit: int = 20) -> None:
        """Print the first rows, as Spark does."""
        self.to_df().show(limit, truncate=False)

    def __repr__(self) -> str:
        return f"<tailrace.Result {self.message or ', '.join(self.columns)}>"


def done(
    spark: Callable[[], SparkSession],
    message: str,
    facts: Mapping[str, Any] | None = None,
    *,
    snapshot: int | None = None,
) -> Result:
    """What a statement did: a message for people, and one row of facts for programs."""
    row = {"message": message, "snapshot": snapshot, **(facts or {})}
    return Result(spark=spark, rows=pa.Table.from_pylist([row]), message=message, snapshot=snapshot)


def listed(
    spark: Callable[[], SparkSession],
    rows: Sequence[Mapping[str, Any]],
    schema: Mapping[str, pa.DataType],
    *,
    text: str = "",
) -> Result:
    """Rows that the catalog gave."""
    names = pa.schema(list(schema.items()))
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=names)
    return Result(spark=spark, rows=table, text=text)
