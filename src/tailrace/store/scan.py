"""A table's rows at a snapshot, read or searched by this process.

Owned here: what a scan is, what of it is done here rather than on Spark (`Budget`), by one thread
or several, and how all of its rows are read, or those that a filter wants (`Search`). `spark_scan`
reads the same scans with Spark.

Always true: row groups that cannot hold a wanted row by their statistics are not decoded, and of
the columns that are not compared only those row groups where something was found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from tailrace.objects import Storage
from tailrace.settings import Settings
from tailrace.store.files import NONE, DataFile, Positions, RowRange, union
from tailrace.store.open_file import WORTH_THREADS, Layout, open_file, schema_of
from tailrace.store.reader import Batch, read_groups, read_rows
from tailrace.store.runtime import Runtime
from tailrace.store.schema import HIDDEN, Column, TableInfo
from tailrace.store.stats import FileStats, Filter, known_of

T = TypeVar("T")
R = TypeVar("R")


def pays(storage: Storage, rows: int) -> bool:
    """Whether threads are worth it for a read of so many rows: always, where storage waits."""
    return storage.local is None or rows >= WORTH_THREADS


def each(run: Callable[[T], R], tasks: Sequence[T], *, threads: bool = True) -> list[R]:
    """What a function returns for each task, in their order."""
    if len(tasks) <= 1 or not threads:
        return [run(task) for task in tasks]
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="tailrace-read") as pool:
        return list(pool.map(run, tasks))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a read takes, by the catalog and the delete files alone."""

    rows: int  # held in memory in the end
    size: int  # about how many bytes of Parquet they are in
    # Rows decoded to find them, a row group at a time; 0 if every row that is decoded is held.
    searched: int = 0

    @property
    def decoded(self) -> int:
        """How many rows are decoded."""
        return max(self.rows, self.searched)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much this process reads itself before Spark is asked."""

    rows: int
    size: int
    searched: int

    @staticmethod
    def of(settings: Settings) -> Budget:
        """For rows that are handed on as a whole, to a caller or to Spark."""
        return Budget(
            rows=settings.local_rows, size=settings.local_bytes, searched=settings.local_keys
        )

    def for_rows(self, rows: int) -> Budget:
        """The same for so many rows: whoever goes on with them in this process can hold more."""
        return replace(self, rows=rows)

    def covers(self, cost: Cost) -> bool:
        """Whether a read is done here."""
        fits = cost.rows <= self.rows and cost.size <= self.size
        return fits and (not cost.searched or self.covers_search(cost.searched))

    def covers_search(self, rows: int) -> bool:
        """Whether so many rows are looked at here, a row group at a time."""
        return rows <= self.searched


@dataclass(frozen=True, kw_only=True)
class LiveFile:
    """A data file in a scan."""

    file: DataFile
    # Positions that the reading transaction itself has deleted.
    removed: Positions = field(default_factory=lambda: NONE)

    def dead(self, runtime: Runtime, at: int) -> Positions:
        """The positions that the scan must not show."""
        committed = runtime.deletes.read(self.file.deletes).at(at)
        return union([committed, self.removed]) if len(self.removed) else committed

    def visible(self, runtime: Runtime, at: int) -> RowRange:
        """The positions that it shows."""
        without = self.dead(runtime, at) if self.has_deletes else None
        return RowRange.of(self.file, without=without)

    @property
    def has_deletes(self) -> bool:
        return self.file.deletes is not None or len(self.removed) > 0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The files of a table at a snapshot, or in a transaction."""

    table: TableInfo
    at: int
    files: tuple[LiveFile, ...]

    @staticmethod
    def of(table: TableInfo, at: int, files: Iterable[DataFile]) -> Scan:
        """Of files that are committed."""
        return Scan(table=table, at=at, files=tuple(LiveFile(file=file) for file in files))

    def pruned(self, where: Filter, statistics: FileStats) -> Scan:
        """Without the files that cannot hold a wanted row."""
        files = tuple(f for f in self.files if where.may_hold(known_of(f.file, statistics)))
        return replace(self, files=files)

    @property
    def rows(self) -> int:
        """At most so many rows."""
        return sum(live.file.rows for live in self.files)

    @property
    def size(self) -> int:
        return sum(live.file.size for live in self.files)

    @property
    def cost(self) -> Cost:
        """What reading all of it takes."""
        return Cost(rows=self.rows, size=self.size)


def is_small(scan: Scan, runtime: Runtime) -> bool:
    """Whether the driver may read a scan itself."""
    return Budget.of(runtime.settings).covers(scan.cost)


def to_arrow(runtime: Runtime, scan: Scan) -> pa.Table:
    """All rows of a small scan."""
    return _read(runtime, scan, scan.table.columns)


def to_arrow_with_places(runtime: Runtime, scan: Scan) -> pa.Table:
    """All rows of a small scan, with `_file` and `_pos`; every column may be NULL."""
    columns = (*scan.table.columns, *HIDDEN)
    rows = _read(runtime, scan, columns)
    return pa.table(rows.columns, schema=pa.schema([(c.name, c.type) for c in columns]))


def _read(runtime: Runtime, scan: Scan, columns: Sequence[Column]) -> pa.Table:
    kept = runtime.kept_files.for_read(scan.rows, columns)

    def rows_of(live: LiveFile) -> pa.Table:
        return read_rows(runtime.storage, live.visible(runtime, scan.at), columns, kept=kept)

    parts = each(rows_of, scan.files, threads=pays(runtime.storage, scan.rows))
    return pa.concat_tables([schema_of(columns).empty_table(), *parts])


# Rows that one task compares, about.
_TASK_ROWS = 524_288


@dataclass(frozen=True, kw_only=True)
class _Task:
    live: LiveFile
    layout: Layout
    groups: Sequence[int]


@dataclass(frozen=True)
class Search:
    """A search in a scan, which should be pruned."""

    runtime: Runtime
    scan: Scan
    where: Filter

    @cached_property
    def rows(self) -> int:
        """The rows of the row groups that are compared."""
        return sum(map(_rows, self._tasks))

    def run(
        self,
        columns: Sequence[Column],
        rows_of: Callable[[LiveFile], RowRange],
        use: Callable[[LiveFile, Batch], T],
    ) -> list[T]:
        """What a function makes of the wanted rows, batch by batch; it is called by threads."""
        kept = self.runtime.kept_files.for_read(self.rows, {*columns, *self.where.looks_at})

        def run(task: _Task) -> list[T]:
            storage, file, rows = self.runtime.storage, task.live.file, rows_of(task.live)
            with open_file(storage, file, kept=kept, layout=task.layout) as opened:
                batches = read_groups(
                    opened, task.groups, rows, columns, self.where, use_threads=False
                )
                return [use(task.live, batch) for batch in batches]

        threads = pays(self.runtime.storage, self.rows)
        return [one for found in each(run, self._tasks, threads=threads) for one in found]

    @cached_property
    def _tasks(self) -> list[_Task]:
        remote = self.runtime.storage.local is None
        found = each(self._tasks_of, self.scan.files, threads=remote)
        return [task for tasks in found for task in tasks]

    def _tasks_of(self, live: LiveFile) -> list[_Task]:
        runtime = self.runtime
        with open_file(runtime.storage, live.file, kept=runtime.kept_files) as opened:
            groups, layout = opened.groups(RowRange.of(live.file), self.where), opened.layout
        return [
            _Task(live=live, layout=layout, groups=share)
            for share in layout.shares(groups, _TASK_ROWS)
        ]


def _rows(task: _Task) -> int:
    return sum(last - first for first, last in map(task.layout.span, task.groups))
