"""A table's rows at a snapshot, read by the driver itself.

Owned here: what a scan is, and the way of reading that needs no Spark. It is for what is small:
`is_small` says so. `spark_scan` reads the same scans with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.store.deletes import NOTHING, Positions, union
from tailrace.store.files import DataFile
from tailrace.store.runtime import Runtime
from tailrace.store.schema import FILE, HIDDEN, Column, TableInfo


@dataclass(frozen=True, kw_only=True)
class LiveFile:
    """A data file in a scan."""

    file: DataFile
    # Positions that the reading transaction itself has deleted.
    removed: Positions = field(default_factory=lambda: NOTHING.positions)

    def dead(self, runtime: Runtime, at: int) -> Positions:
        """The positions that the scan must not show."""
        committed = runtime.deletes.read(self.file.deletes).at(at)
        return union([committed, self.removed]) if len(self.removed) else committed

    @property
    def has_deletes(self) -> bool:
        return self.file.deletes is not None or len(self.removed) > 0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The files of a table at a snapshot, or in a transaction."""

    table: TableInfo
    at: int
    files: tuple[LiveFile, ...]

    @property
    def rows(self) -> int:
        """At most so many rows."""
        return sum(live.file.rows for live in self.files)

    @property
    def size(self) -> int:
        return sum(live.file.size for live in self.files)


def is_small(scan: Scan, runtime: Runtime) -> bool:
    """Whether the driver may read a scan itself."""
    limits = runtime.settings
    return scan.rows <= limits.local_rows and scan.size <= limits.local_bytes


def to_arrow(runtime: Runtime, scan: Scan) -> pa.Table:
    """All rows of a small scan."""
    parts = [
        read_file(
            runtime.storage,
            live.file,
            scan.table.columns,
            without=live.dead(runtime, scan.at) if live.has_deletes else None,
        )
        for live in scan.files
    ]
    schema = scan.table.arrow_schema
    return pa.concat_tables([schema.empty_table(), *parts])


def to_arrow_with_places(runtime: Runtime, scan: Scan) -> pa.Table:
    """All rows of a small scan, with `_file` and `_pos`."""
    fields = [pa.field(c.name, c.type) for c in (*scan.table.columns, *HIDDEN)]
    parts = [
        pa.table(found.columns, schema=pa.schema(fields))
        for live in scan.files
        for found in [
            read_file(
                runtime.storage,
                live.file,
                (*scan.table.columns, *HIDDEN),
                without=live.dead(runtime, scan.at) if live.has_deletes else None,
            )
        ]
    ]
    return pa.concat_tables([pa.schema(fields).empty_table(), *parts])


def read_file(
    storage: Storage,
    file: DataFile,
    columns: Sequence[Column],
    *,
    without: Positions | None = None,
    only: Positions | None = None,
) -> pa.Table:
    """Rows of one file under the columns' names: all, all but some, or only some.

    With `only`, no row group is read that holds none of them.
    """
    with storage.open_read(file.path) as source:
        parquet = pq.ParquetFile(source)
        check_rows(storage, file, parquet.metadata)
        if only is not None:
            return _read_only(parquet, columns, only)
        names = _present(parquet, columns)
        table = named_rows(parquet.read(columns=names), columns, file.rows)
    if without is not None and len(without):
        mask = np.ones(file.rows, bool)
        mask[without] = False
        return table.filter(pa.array(mask))
    return table


def _present(parquet: pq.ParquetFile, columns: Sequence[Column]) -> list[str]:
    names = set(parquet.schema_arrow.names)
    return [column.physical for column in columns if column.physical in names]


def named_rows(rows: pa.Table, columns: Sequence[Column], count: int) -> pa.Table:
    """Rows of a file as today's columns: missing ones as NULL, narrower ones widened."""
    arrays = [
        rows.column(column.physical).cast(column.type)
        if column.physical in rows.column_names
        else pa.nulls(count, column.type)
        for column in columns
    ]
    fields = [pa.field(column.name, column.type, column.nullable) for column in columns]
    return pa.table(arrays, schema=pa.schema(fields))


def _read_only(parquet: pq.ParquetFile, columns: Sequence[Column], only: Positions) -> pa.Table:
    """The rows at some positions. One row group is held at a time, however many hold one."""
    names = _present(parquet, columns)
    starts = group_starts(parquet.metadata)
    group_of = np.searchsorted(starts, only, side="right") - 1
    parts = []
    for group in np.unique(group_of):
        rows = parquet.read_row_group(int(group), columns=names)
        wanted = only[group_of == group] - starts[group]
        parts.append(named_rows(rows.take(pa.array(wanted)), columns, len(wanted)))
    return pa.concat_tables(parts)


def check_rows(storage: Storage, file: DataFile, footer: pq.FileMetaData) -> None:
    """Refuse an object that is not the one that the catalog means."""
    if footer.num_rows != file.rows:
        raise CorruptError(
            f"the object {storage.uri(file.path)} holds {footer.num_rows} rows; "
            f"the catalog says {file.rows}"
        )
    # The hidden columns stand last, and `_file` is the same in all rows.
    place = footer.num_columns - len(HIDDEN)
    chunk = footer.row_group(0).column(place)
    if chunk.path_in_schema != FILE or chunk.statistics.min != file.key:
        raise CorruptError(f"the object {storage.uri(file.path)} holds the rows of another file")


def group_starts(footer: pq.FileMetaData) -> Positions:
    """The position at which each row group starts, and the number of rows at the end."""
    counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
