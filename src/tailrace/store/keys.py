"""Which of these keys exist in a table, and where.

First the files that cannot hold one are left out by their statistics. What remains is searched by
the driver, one row group at a time, while that is cheaper than a Spark job; else by a Spark join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.errors import CorruptError
from tailrace.spark_sql import types
from tailrace.store import stats
from tailrace.store.deletes import Positions, from_bitmap, to_bitmap, union
from tailrace.store.files import ColumnStats, DataFile
from tailrace.store.rows import plain_rows
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan, check_rows, group_starts, read_file
from tailrace.store.schema import FILE, POS, Column, TableInfo
from tailrace.store.spark_faults import spark_faults
from tailrace.store.spark_scan import load, local_frame, to_df
from tailrace.store.write import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Places = dict[int, Positions]  # positions by file key
Bounds = tuple[Any, Any] | None  # None: anything is possible


@dataclass(frozen=True, kw_only=True)
class Keys:
    """A set of keys to look for."""

    table: TableInfo
    rows: int
    # For each piece of the set (a file), the bounds of each key column.
    pieces: tuple[tuple[Bounds, ...], ...]
    # The keys under their physical names: in memory if few, and as a DataFrame in any case.
    local: pa.Table | None
    frame: Callable[[], DataFrame]


def keys_of_files(runtime: Runtime, table: TableInfo, written: Written) -> Keys:
    """The keys of files that were just written."""
    columns = table.key_columns
    local = written.keys
    if local is None and written.rows <= runtime.settings.local_rows:
        parts = [read_file(runtime.storage, file, columns) for file in written.files]
        local = pa.concat_tables(parts).rename_columns([c.physical for c in columns])
    by_file = [{s.column_id: s for s in file.stats} for file in written.files]
    return Keys(
        table=table,
        rows=written.rows,
        pieces=tuple(_bounds_of(found, columns) for found in by_file),
        local=local,
        frame=lambda: load(runtime, written.files, columns),
    )


def keys_of_rows(runtime: Runtime, table: TableInfo, local: pa.Table) -> Keys:
    """Keys that the driver holds, under their physical names."""
    bounds = tuple(stats.of_values(local.column(c.physical)) for c in table.key_columns)
    return Keys(
        table=table,
        rows=local.num_rows,
        pieces=(bounds,),
        local=local,
        frame=lambda: local_frame(runtime, local),
    )


def keys_of_frame(table: TableInfo, frame: DataFrame) -> Keys:
    """Keys that only Spark has, under their physical names, of unknown number and bounds."""
    nothing = tuple(None for _ in table.key)
    return Keys(table=table, rows=-1, pieces=(nothing,), local=None, frame=lambda: frame)


def find_keys(
    runtime: Runtime, keys: Keys, scan: Scan, known: Mapping[int, Mapping[int, ColumnStats]]
) -> Places:
    """Where a scan's live rows have one of the keys. `known`: statistics by file id."""
    if not scan.files or keys.rows == 0:
        return {}
    files = tuple(live for live in scan.files if _may_hold(keys, live.file, known))
    pruned = Scan(table=scan.table, at=scan.at, files=files)
    if keys.local is not None and pruned.rows <= runtime.settings.local_keys:
        return _find_locally(runtime, keys.table, keys.local, pruned)
    return _find_with_spark(runtime, keys, pruned) if files else {}


def _bounds_of(found: Mapping[int, ColumnStats], columns: Sequence[Column]) -> tuple[Bounds, ...]:
    return tuple(stats.of_text(column.type, found.get(column.id)) for column in columns)


def _may_hold(keys: Keys, file: DataFile, known: Mapping[int, Mapping[int, ColumnStats]]) -> bool:
    own = {s.column_id: s for s in file.stats} if file.id < 0 else known.get(file.id, {})
    bounds = _bounds_of(own, keys.table.key_columns)
    return any(
        all(_overlap(a, b) for a, b in zip(piece, bounds, strict=True)) for piece in keys.pieces
    )


def _overlap(a: Bounds, b: Bounds) -> bool:
    return a is None or b is None or bool(a[0] <= b[1] and b[0] <= a[1])


def _find_locally(runtime: Runtime, table: TableInfo, keys: pa.Table, scan: Scan) -> Places:
    places = {}
    for live in scan.files:
        found = _search_file(runtime, table, keys, live.file)
        if len(found) and live.has_deletes:
            found = np.setdiff1d(found, live.dead(runtime, scan.at), assume_unique=True)
        if len(found):
            places[live.file.key] = found
    return places


def _search_file(runtime: Runtime, table: TableInfo, keys: pa.Table, file: DataFile) -> Positions:
    columns = table.key_columns
    names = [column.physical for column in columns]
    found = []
    with runtime.storage.open_read(file.path) as source:
        parquet = pq.ParquetFile(source)
        check_rows(runtime.storage, file, parquet.metadata)
        starts = group_starts(parquet.metadata)
        for group in _groups(parquet.metadata, columns[0], keys.column(names[0])):
            rows = parquet.read_row_group(group, columns=names)
            # Older files may have a narrower type.
            held = pa.table([rows.column(c.physical).cast(c.type) for c in columns], names=names)
            found.append(_match(held, keys) + starts[group])
    return union(found)


def _groups(footer: pq.FileMetaData, first: Column, wanted: pa.ChunkedArray) -> Iterator[int]:
    """The row groups that can hold one of the wanted values of the first key column."""
    place = stats.leaves(footer)[first.physical]
    values = np.sort(wanted.to_numpy()) if pa.types.is_integer(first.type) else None
    limits = stats.of_values(wanted)
    for group in range(footer.num_row_groups):
        bounds = stats.of_chunk(first.type, footer.row_group(group).column(place).statistics)
        if values is not None and bounds is not None:
            at = np.searchsorted(values, bounds[0])
            if at < len(values) and values[at] <= bounds[1]:
                yield group
        elif _overlap(limits, bounds):
            yield group


def _match(held: pa.Table, keys: pa.Table) -> Positions:
    """The places in `held` whose key is one of `keys`."""
    if held.num_columns == 1:
        mask = pc.is_in(held.column(0), value_set=keys.column(0).combine_chunks())
        return np.flatnonzero(mask.to_numpy()).astype(np.int64)
    # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
    names = [str(number) for number in range(keys.num_columns)]
    held, keys = held.rename_columns(names), keys.rename_columns(names)
    numbered = held.append_column(POS, pa.array(np.arange(held.num_rows, dtype=np.int64)))
    joined = numbered.join(keys, keys=names, join_type="left semi")
    return np.sort(joined.column(POS).to_numpy())


def _find_with_spark(runtime: Runtime, keys: Keys, scan: Scan) -> Places:
    columns = keys.table.key_columns
    rows = to_df(runtime, scan, places=True)
    wanted = keys.frame()
    same = None
    for column in columns:
        one = rows[types.quote(column.name)] == wanted[types.quote(column.physical)]
        same = one if same is None else same & one
    return collect_places(rows.join(wanted, same, "left_semi"), scan.files)


def collect_places(rows: DataFrame, files: Iterable[LiveFile]) -> Places:
    """The places of a DataFrame's rows: they come to the driver as one bit a row."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[int, list[Positions]] = {}
        for batch in batches:
            file_keys, positions = (column.to_numpy() for column in batch.columns)
            for file_key in np.unique(file_keys):
                found.setdefault(int(file_key), []).append(positions[file_keys == file_key])
        bitmaps = [to_bitmap(np.concatenate(parts)) for parts in found.values()]
        arrays = [pa.array(list(found), pa.int64()), pa.array(bitmaps, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, names=[FILE, "bitmap"])

    with spark_faults():
        bitmaps = rows.select(FILE, POS).mapInArrow(task, f"{FILE} bigint, bitmap binary")
        collected = bitmaps.toArrow()
    known = {live.file.key for live in files}
    places: Places = {}
    for row in collected.to_pylist():
        if row[FILE] not in known:
            raise CorruptError(
                f"an object calls itself file {row[FILE]}, which is not of the table"
            )
        positions = from_bitmap(row["bitmap"])
        places[row[FILE]] = union([places.get(row[FILE], positions), positions])
    return places


def show_keys(runtime: Runtime, table: TableInfo, places: Places, files: Iterable[DataFile]) -> str:
    """A few of the keys that were found, for messages."""
    by_key = {file.key: file for file in files}
    file_key, positions = next(iter(places.items()))
    rows = read_file(runtime.storage, by_key[file_key], table.key_columns, only=positions[:3])
    return ", ".join(str(row) for row in plain_rows(rows))
