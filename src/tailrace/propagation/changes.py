"""What a consumer gets: the changes of its sources in one range. It applies the deletes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.arguments import checked
from tailrace.errors import InvalidError, NotFoundError
from tailrace.propagation.job import RunKind
from tailrace.propagation.shared_reads import SharedRead, only
from tailrace.spark_sql.types import quote
from tailrace.store.changes import DELETE, INSERT, Feed
from tailrace.store.names import fold, quoted_name, split_name
from tailrace.store.schema import CHANGE, SNAPSHOT, TableInfo
from tailrace.store.spark_scan import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.store.runtime import Runtime
    from tailrace.store.scan import Scan


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
