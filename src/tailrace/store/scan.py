"""A table's rows at a snapshot, read by the driver itself.

Owned here: what a scan is, and how all of its rows are read without Spark, which is for what a
`Budget` covers. `spark_scan` reads the same scans with Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tailrace.store.files import DataFile
from tailrace.store.parallel import each, pays
from tailrace.store.positions import NONE, Positions, union
from tailrace.store.reader.batches import read_rows
from tailrace.store.reader.budget import Budget, Cost
from tailrace.store.reader.filters import FileStats, Filter, known_of
from tailrace.store.reader.opened import schema_of
from tailrace.store.reader.row_range import RowRange
from tailrace.store.runtime import Runtime
from tailrace.store.schema import HIDDEN, Column, TableInfo


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
    kept = runtime.kept_files.for_read(scan.rows, len(columns))

    def rows_of(live: LiveFile) -> pa.Table:
        return read_rows(runtime.storage, live.visible(runtime, scan.at), columns, kept=kept)

    parts = each(rows_of, scan.files, threads=pays(runtime.storage, scan.rows))
    return pa.concat_tables([schema_of(columns).empty_table(), *parts])
