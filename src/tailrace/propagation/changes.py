"""What changed in the sources of iterations, and how a consumer sees it.

Always true: while anybody uses them, the changes of one table in one range are planned and read
once, with all columns that were asked for before the plan (`SharedRead`). Small ones are held in
memory, larger ones are persisted by Spark, and both are released by the last user. A consumer gets
`Changes`, with the columns that it asked for, and applies the deletes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.arguments import checked
from tailrace.errors import InvalidError, NotFoundError
from tailrace.propagation.job import RunKind
from tailrace.spark_sql.types import quote
from tailrace.store import changes as feed
from tailrace.store import scan, spark_scan
from tailrace.store.changes import DELETE, INSERT, Feed
from tailrace.store.names import fold, quoted_name, split_name
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import CHANGE, SNAPSHOT, TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_scan import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# A table and a range; `since` None is all rows at `to`.
Key = tuple[int, int | None, int]
# Rows of an Arrow batch that a consumer pulls out of a large feed, about.
_BATCH_ROWS = 200_000


class SharedRead:
    """The changes of one table in one range, planned and read when first needed."""

    def __init__(
        self, runtime: Runtime, plan: Callable[[set[str] | None], feed.Feed | Scan]
    ) -> None:
        """`plan` finds the files for some columns, or for all with None."""
        self._runtime, self._find = runtime, plan
        self._lock = threading.Lock()
        self.users = 0
        self.columns: set[str] | None = set()  # None: all
        self._plan: feed.Feed | Scan | None = None
        self._table: pa.Table | None = None
        self._frame: DataFrame | None = None

    def want(self, columns: list[str] | None) -> bool:
        """Add columns to those that will be read; False if it is too late for one of them."""
        with self._lock:
            known = self.columns
            if self._plan is None:
                self.columns = None if columns is None or known is None else known | set(columns)
                return True
            return known is None or (columns is not None and set(columns) <= known)

    def plan(self) -> feed.Feed | Scan:
        """The files to read, from the catalog."""
        with self._lock:
            return self._planned()

    def _planned(self) -> feed.Feed | Scan:
        if self._plan is None:
            self._plan = self._find(self.columns)
        return self._plan

    @property
    def info(self) -> TableInfo:
        return self.plan().table

    @property
    def only_inserts(self) -> bool:
        """Whether nothing was deleted."""
        plan = self.plan()
        return isinstance(plan, Scan) or plan.only_inserts

    @property
    def rows(self) -> int:
        """How many rows are read, by the catalog."""
        return self.plan().rows

    @property
    def bytes(self) -> int:
        """About how many bytes of Parquet are read."""
        plan = self.plan()
        if isinstance(plan, feed.Feed):
            return plan.bytes_read(self._runtime.settings)
        return sum(live.file.size for live in plan.files)

    @property
    def is_small(self) -> bool:
        plan = self.plan()
        if isinstance(plan, feed.Feed):
            return feed.is_small(self._runtime, plan)
        return scan.is_small(plan, self._runtime)

    def table(self) -> pa.Table:
        """All of it in memory: `_change`, `_snapshot`, then the columns."""
        with self._lock:
            if self._table is None:
                plan = self._planned()
                if isinstance(plan, feed.Feed):
                    self._table = feed.to_arrow(self._runtime, plan)
                else:
                    rows = scan.to_arrow(self._runtime, plan)
                    # Of all rows, the snapshot that they are read at.
                    at = pa.repeat(pa.scalar(plan.at, pa.int64()), rows.num_rows)
                    marks = pa.repeat(feed.INSERT, rows.num_rows)
                    self._table = rows.add_column(0, SNAPSHOT, at).add_column(0, CHANGE, marks)
            return self._table

    def frame(self) -> DataFrame:
        """All of it as a DataFrame: `_change`, `_snapshot`, then the columns."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        if self.is_small:
            return spark_scan.local_frame(self._runtime, self.table())
        with self._lock:
            if self._frame is None:
                plan = self._planned()
                if isinstance(plan, feed.Feed):
                    rows = feed.to_df(self._runtime, plan)
                else:
                    rows = spark_scan.to_df(self._runtime, plan)
                    at = F.lit(plan.at).cast("bigint").alias(SNAPSHOT)
                    rows = rows.select(F.lit(feed.INSERT).alias(CHANGE), at, "*")
                # Each job reads it again, and inserts apart from deletes. A whole table that one
                # job reads once is not worth the copy; nor is what nobody will release.
                if self.users > (1 if isinstance(plan, Scan) else 0):
                    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
                self._frame = rows
            return self._frame

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of it, deletes first; the driver holds one piece at a time."""
        for change in [feed.INSERT] if self.only_inserts else [feed.DELETE, feed.INSERT]:
            pieces = self._pieces(change)
            for piece in pieces:
                yield from (b for b in piece.to_batches(max_chunksize=65_536) if b.num_rows)

    def _pieces(self, change: str) -> Iterator[pa.Table]:
        if self.is_small:
            rows = self.table()
            yield rows.filter(pc.equal(rows.column(CHANGE), change))
            return
        from pyspark.sql import functions as F

        count = max(1, -(-self.rows // _BATCH_ROWS))
        rows = self.frame().where(F.col(CHANGE) == change).repartition(count).persist()
        marks = [(CHANGE, pa.string()), (SNAPSHOT, pa.int64())]
        schema = pa.schema([*marks, *self._fields()])
        try:
            for piece in range(count):
                with spark_faults():
                    yield rows.where(F.spark_partition_id() == piece).toArrow().cast(schema)
        finally:
            rows.unpersist()

    def _fields(self) -> list[tuple[str, pa.DataType]]:
        return [(column.name, column.type) for column in self.info.columns]

    def close(self) -> None:
        """Release what is held in memory and by Spark."""
        with self._lock:
            if self._frame is not None:
                with suppress(Exception):  # Spark may have ended, and holds nothing then
                    if self._frame.is_cached:
                        self._frame.unpersist()
            self._frame = self._table = None


def only(table: pa.Table, change: str) -> pa.Table:
    """The inserted or the deleted rows of changes in memory."""
    return table.filter(pc.equal(table.column(CHANGE), change)).drop_columns([CHANGE])


def plan_range(runtime: Runtime, key: Key, columns: set[str] | None) -> feed.Feed | Scan:
    """The files of a table that have to be read for a range, from the catalog."""
    table_id, since, to = key
    table = runtime.mirror.table_by_id(table_id, to)
    if table is None:
        raise NotFoundError(f"the source table {table_id} is not there at {to}")
    if columns is not None:
        table = table.narrowed(columns)
    if since is not None:
        return feed.plan(runtime, table, since, to, net=True)
    return Scan.of(table, to, runtime.mirror.data_files(table, to))


class SharedReads:
    """The reads that are in use on this node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._current: dict[Key, SharedRead] = {}

    def acquire(self, key: Key, columns: list[str] | None) -> SharedRead:
        """The read of a range with some columns; release it in the end."""
        with self._lock:
            read = self._current.get(key)
            if read is None or not read.want(columns):
                read = SharedRead(self._runtime, partial(plan_range, self._runtime, key))
                read.want(columns)
                # One that lacks a column is replaced for later users; its own users keep it.
                self._current[key] = read
            read.users += 1
            return read

    def release(self, read: SharedRead) -> None:
        """Say that one user is done with it."""
        with self._lock:
            read.users -= 1
            if read.users:
                return
            self._current = {k: r for k, r in self._current.items() if r is not read}
        read.close()


@checked
class SourceChanges:
    """The changes of one source."""

    def __init__(
        self,
        runtime: Runtime,
        read: SharedRead,
        columns: list[str] | None,
        *,
        snapshots: bool = False,
    ) -> None:
        """With `snapshots`, each row begins with `_snapshot`, which inserted or deleted it."""
        self._runtime, self._read = runtime, read
        info = read.info
        self.info: TableInfo = info if columns is None else info.narrowed(columns)
        names = [column.name for column in self.info.columns]
        self._names = [SNAPSHOT, *names] if snapshots else names

    @property
    def plan(self) -> Feed | Scan:
        """The files that they are in, for consumers that read files themselves."""
        return self._read.plan()

    @property
    def is_small(self) -> bool:
        """Whether they are few enough for memory, so that Spark is not needed."""
        return self._read.is_small

    @property
    def rows(self) -> int:
        """How many rows were inserted and deleted; an update may count as both."""
        return self._read.rows

    def to_arrow(self) -> pa.Table:
        """All of them in memory: `_change`, then the columns."""
        return self._read.table().select([CHANGE, *self._names])

    def to_df(self) -> DataFrame:
        """All of them: `_change`, then the columns."""
        return self._read.frame().select([quote(name) for name in (CHANGE, *self._names)])

    @property
    def inserts(self) -> DataFrame:
        """Rows that were inserted, and the new state of rows that were updated."""
        return self._frame(INSERT)

    @property
    def deletes(self) -> DataFrame:
        """Rows that were deleted, and the old state of rows that were updated."""
        return self._frame(DELETE)

    def _frame(self, change: str) -> DataFrame:
        from pyspark.sql import functions as F

        if self.is_small:
            return local_frame(self._runtime, self.arrow(change))
        rows = self._read.frame()
        if not self._read.only_inserts:
            rows = rows.where(F.col(CHANGE) == change)
        elif change == DELETE:
            rows = rows.limit(0)
        # By names: each Column would be some calls to the JVM of its own.
        return rows.select([quote(name) for name in self._names])

    def arrow(self, change: str) -> pa.Table:
        """`"insert"` or `"delete"`: those rows in memory, if they are small."""
        if not self.is_small:
            raise InvalidError("these changes are too many for memory: use batches()")
        return only(self._read.table(), change).select(self._names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `_change` and the columns, one at a time: all deletes, then inserts."""
        for batch in self._read.batches():
            yield batch.select([CHANGE, *self._names])


class NoSourceError(NotFoundError, KeyError):
    """A table is not one of a job's sources. Also a KeyError, as for any mapping."""

    __str__ = NotFoundError.__str__


@checked
class Changes(Mapping[str, SourceChanges]):
    """The changes of a job's sources: `changes.inserts` with one, `changes[table]` with several."""

    def __init__(
        self, kind: RunKind, since: int | None, until: int, sources: Mapping[str, SourceChanges]
    ) -> None:
        self.kind = kind
        self.since, self.until = since, until
        self._sources = dict(sources)

    def __getitem__(self, table: str) -> SourceChanges:
        wanted = quoted_name(*(fold(part) for part in split_name(table)))
        for name, source in self._sources.items():
            if fold(name) == wanted:
                return source
        raise NoSourceError(f"{table} is not a source of this job: {', '.join(self._sources)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def _only(self) -> SourceChanges:
        if len(self._sources) != 1:
            raise InvalidError(f"this job has several sources: changes[{next(iter(self))!r}]")
        return next(iter(self._sources.values()))

    @property
    def inserts(self) -> DataFrame:
        """Of the only source: inserted rows, and the new state of updated ones."""
        return self._only.inserts

    @property
    def deletes(self) -> DataFrame:
        """Of the only source: deleted rows, and the old state of updated ones."""
        return self._only.deletes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Of the only source: Arrow batches of `_change` and the columns; deletes, then inserts."""
        return self._only.batches()

    @property
    def rows(self) -> int:
        """How many rows were inserted and deleted, over all sources."""
        return sum(source.rows for source in self._sources.values())
