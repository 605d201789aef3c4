"""A table's or view's rows at a snapshot, read by Spark's tasks with Arrow.

The catalog is asked once, for the files; tasks then read those, without the deleted rows. Small
files share a task, and large ones are read by several. By a query's conditions and by statistics,
files and row groups are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from tailrace.datasource.place import Place
from tailrace.errors import InvalidError, NotFoundError
from tailrace.lake import Lake
from tailrace.objects import Storage
from tailrace.spark_sql import types
from tailrace.store import stats
from tailrace.store.deletes import DeleteFiles
from tailrace.store.files import DataFile, RowRange
from tailrace.store.names import split_name
from tailrace.store.reader import read
from tailrace.store.scan import Scan
from tailrace.store.schema import Column
from tailrace.store.source import arrow_schema
from tailrace.store.stats import Comparison, Comparisons
from tailrace.store.table import scan_at

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def understood(filters: Iterable[Filter], columns: Sequence[Column]) -> Iterator[Comparison]:
    """The filters that statistics can say something to, where that is beyond doubt."""
    by_name = {column.name: column for column in columns}
    for given in filters:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        value: Any = getattr(given, "value", None)
        column = by_name.get(path[0]) if len(path) == 1 else None
        operator = _OPERATORS.get(type(given))
        if operator is None or column is None or not _compares(column.type):
            continue
        bounds = _bounds(list(value) if isinstance(given, In) else [value], column.type)
        if bounds is not None:
            yield Comparison(column=column, operator=operator, least=bounds[0], most=bounds[1])


def _compares(kind: pa.DataType) -> bool:
    """Not floats, where NaN is the greatest, and nothing that has no order."""
    exact = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_date)
    return any(is_kind(kind) for is_kind in exact)


def _bounds(values: list[Any], kind: pa.DataType) -> stats.Bounds:
    try:
        return stats.of_values(pa.chunked_array([pa.array(values, kind)]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # not a value that the column can have


# What a task reads, in bytes of Parquet; opening a file counts as much as some rows.
_TASK_BYTES = 32 * 1024 * 1024
_OPEN_BYTES = 1024 * 1024
_BATCH_ROWS = 65_536


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a name means at a snapshot."""

    scan: Scan
    columns: tuple[Column, ...]  # that are shown
    where: Column | None = None  # of a view: the rows are shown for which it is true


def find(lake: Lake, name: str, at: int | None) -> Found:
    """A table, or a view's stored rows; now, or at a snapshot."""
    try:
        view = lake.view(name)
    except NotFoundError:
        scan = _scan(lake, name, at)
        return Found(scan=scan, columns=scan.table.columns)
    stored, reader = view.reading()
    if reader.args.get("limit") or reader.args.get("offset"):
        raise InvalidError(
            f"the view {view.name} has a LIMIT, which only Spark can apply: read it by "
            f"lake.view({name!r}).to_df()"
        )
    scan = _scan(lake, stored, at)
    where = reader.args.get("where")
    return Found(
        scan=scan,
        columns=tuple(scan.table.column(item.name) for item in reader.selects),
        where=None if where is None else scan.table.column(where.this.name),
    )


def _scan(lake: Lake, name: str, at: int | None) -> Scan:
    schema, plain = split_name(name)
    runtime = lake.runtime
    at = runtime.mirror.moment(at)
    table = runtime.mirror.find_table(schema, plain, at, runtime.tenant)
    if table is None:
        raise NotFoundError(f"there is no table or view {schema}.{plain} at snapshot {at}")
    return scan_at(runtime, table, at)


def schema_of(found: Found) -> str:
    """The columns as Spark declares them."""
    return types.spark_schema(pa.schema([(c.name, c.type) for c in found.columns]))


def _columns(found: Found, schema: StructType) -> tuple[Column, ...]:
    """The columns of a schema, which may be some of those that there are."""
    table = replace(found.scan.table, columns=found.columns)
    chosen = []
    for name, kind in types.of_columns(schema).items():
        column = table.column(name)
        if kind != column.type:
            raise InvalidError(
                f"{table.full_name}.{column.name} is {types.spark_type(column.type)}: "
                "leave the schema out, or give the column this type"
            )
        chosen.append(column)
    return tuple(chosen)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The row groups of a file that begin in a range of its rows."""

    file: DataFile
    start: int
    stop: int
    size: int  # about how many bytes


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(len(pieces))
        self.pieces = tuple(pieces)


def tasks_of(files: Iterable[DataFile]) -> list[InputPartition]:
    """Files as tasks of about the same size."""
    tasks: list[InputPartition] = []
    held: list[Piece] = []
    for piece in (piece for file in files for piece in _pieces(file)):
        if held and sum(p.size for p in held) + piece.size > _TASK_BYTES:
            tasks.append(Task(held))
            held = []
        held.append(piece)
    return [*tasks, Task(held)] if held else tasks


def _pieces(file: DataFile) -> list[Piece]:
    count = max(1, min(round(file.size / _TASK_BYTES), file.rows))
    edges = [file.rows * n // count for n in range(count + 1)]
    size = file.size // count + _OPEN_BYTES
    return [Piece(file=file, start=start, stop=stop, size=size) for start, stop in pairwise(edges)]


class TableReader(DataSourceReader):
    """Reads the rows that were found. It is sent to the tasks."""

    def __init__(self, storage: Storage, found: Found, schema: StructType) -> None:
        self._storage, self._at, self._where = storage, found.scan.at, found.where
        self._columns = _columns(found, schema)
        self._schema = arrow_schema(schema)
        self._scan = found.scan
        self._needed = Comparisons(every=())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scan": None}  # a task gets the files that it reads

    def partitions(self) -> Sequence[InputPartition]:
        return tasks_of(live.file for live in self._scan.files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):  # of an empty table, Spark makes up another
            deletes = DeleteFiles(self._storage)
            for piece in partition.pieces:
                yield from self._read(piece, deletes)

    def _read(self, piece: Piece, deletes: DeleteFiles) -> Iterator[pa.RecordBatch]:
        columns = (*self._columns, *([] if self._where is None else [self._where]))
        dead = deletes.read(piece.file.deletes).at(self._at)
        for _, rows in read(
            self._storage,
            RowRange.of(piece.file, without=dead),
            columns,
            where=self._needed,
            begin_in=(piece.start, piece.stop),
            pre_buffer=True,
        ):
            yield from self._shown(rows)

    def _shown(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        if self._where is not None:
            rows = rows.filter(rows.column(rows.num_columns - 1))
        arrays = [rows.column(number).cast(field.type) for number, field in enumerate(self._schema)]
        # With Spark's own idea of what may be NULL.
        yield from pa.table(arrays, schema=self._schema).to_batches(max_chunksize=_BATCH_ROWS)


class SkippingReader(TableReader):
    """Also skips what cannot hold a row for which a query's conditions are true."""

    def __init__(self, storage: Storage, found: Found, schema: StructType, *, place: Place) -> None:
        super().__init__(storage, found, schema)
        self._place: Place | None = place

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_place": None}  # tasks need no catalog

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's)
        needed = Comparisons.of(understood(filters, self._columns))
        if needed.every and self._scan.files:
            assert self._place is not None
            with self._place.open() as lake:
                known = lake.runtime.mirror.file_stats(
                    self._scan.table, tuple(needed.columns), self._at
                )
            self._scan, self._needed = self._scan.pruned(needed, known), needed
        # All of them: a file that is left may hold other rows, too.
        return filters
