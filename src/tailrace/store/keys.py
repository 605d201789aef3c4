"""Which of these keys exist in a table, and where.

First the files that cannot hold one are left out by their statistics. What remains is searched by
the driver, one row group at a time, while that is cheaper than a Spark job; else by a Spark join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import CorruptError
from tailrace.spark_sql import types
from tailrace.store import stats
from tailrace.store.files import (
    NONE,
    DataFile,
    Positions,
    PositionsByFile,
    RowRange,
    from_bitmap,
    to_bitmap,
    union,
)
from tailrace.store.reader import read_rows
from tailrace.store.rows import plain_rows
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, LiveFile, Scan, Search
from tailrace.store.schema import FILE, POS, Column, TableInfo
from tailrace.store.spark_faults import spark_faults
from tailrace.store.spark_scan import load, local_frame, to_df
from tailrace.store.stats import Bounds, FileStats, Flags, Known, known_of, overlap
from tailrace.store.write import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Keys:
    """A set of keys to look for: a `Filter` of the rows that have one of them."""

    table: TableInfo
    rows: int
    # For each piece of the set (a file), the bounds of each key column.
    pieces: tuple[tuple[Bounds, ...], ...]
    # The keys under their physical names: in memory if few, and as a DataFrame in any case.
    local: pa.Table | None
    frame: Callable[[], DataFrame]

    @property
    def looks_at(self) -> tuple[Column, ...]:
        return self.table.key_columns

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        bounds = tuple(known(column).bounds for column in self.looks_at)
        return any(
            all(overlap(a, b) for a, b in zip(piece, bounds, strict=True)) for piece in self.pieces
        ) and self._first_is_in(bounds[0])

    def _first_is_in(self, bounds: Bounds) -> bool:
        """Whether the first column of a key is between two bounds."""
        if self._sorted is None or bounds is None:
            return True
        at = np.searchsorted(self._sorted, bounds[0])
        return bool(at < len(self._sorted) and self._sorted[at] <= bounds[1])

    @cached_property
    def _sorted(self) -> npt.NDArray[np.integer] | None:
        """The first column, if it is at hand and has whole numbers."""
        if self.local is None or not pa.types.is_integer(self.looks_at[0].type):
            return None
        return np.sort(self.local.column(0).to_numpy())

    def found_in(self, rows: pa.Table) -> Flags:
        assert self.local is not None
        if rows.num_columns == 1:
            mask = pc.is_in(rows.column(0), value_set=self.local.column(0).combine_chunks())
            return np.asarray(mask.to_numpy(), bool)
        # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
        names = [str(number) for number in range(rows.num_columns)]
        rows, keys = rows.rename_columns(names), self.local.rename_columns(names)
        numbered = rows.append_column(POS, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        joined = numbered.join(keys, keys=names, join_type="left semi")
        mask = np.zeros(rows.num_rows, bool)
        mask[joined.column(POS).to_numpy()] = True
        return mask


def keys_of_files(runtime: Runtime, table: TableInfo, written: Written) -> Keys:
    """The keys of files that were just written."""
    columns = table.key_columns
    local = written.keys
    if local is None and written.rows <= runtime.settings.local_rows:
        parts = [read_rows(runtime.storage, RowRange.of(file), columns) for file in written.files]
        local = pa.concat_tables(parts).rename_columns([c.physical for c in columns])
    return Keys(
        table=table,
        rows=written.rows,
        pieces=tuple(
            tuple(known(column).bounds for column in columns)
            for known in (known_of(file, {}) for file in written.files)
        ),
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


def find_keys(runtime: Runtime, keys: Keys, scan: Scan, statistics: FileStats) -> PositionsByFile:
    """Where a scan's live rows have one of the keys."""
    pruned = scan.pruned(keys, statistics)
    if not pruned.files or keys.rows == 0:
        return {}
    if keys.local is not None and Budget.of(runtime.settings).covers_search(pruned.rows):
        return _find_locally(runtime, keys, pruned)
    return _find_with_spark(runtime, keys, pruned)


def _find_locally(runtime: Runtime, keys: Keys, scan: Scan) -> PositionsByFile:
    def every(live: LiveFile) -> RowRange:
        return RowRange.of(live.file)

    found: dict[int, list[Positions]] = {}
    for key, positions in Search(runtime, scan, keys).run(
        (), every, lambda live, batch: (live.file.key, batch.positions)
    ):
        found.setdefault(key, []).append(positions)
    places = {}
    for live in scan.files:
        # Which rows are deleted is asked only if there is something to find.
        if live.file.key in found:
            dead = live.dead(runtime, scan.at) if live.has_deletes else NONE
            at = np.setdiff1d(union(found[live.file.key]), dead, assume_unique=True)
            if len(at):
                places[live.file.key] = at
    return places


def _find_with_spark(runtime: Runtime, keys: Keys, scan: Scan) -> PositionsByFile:
    columns = keys.table.key_columns
    rows = to_df(runtime, scan, places=True)
    wanted = keys.frame()
    same = None
    for column in columns:
        one = rows[types.quote(column.name)] == wanted[types.quote(column.physical)]
        same = one if same is None else same & one
    return collect_positions(rows.join(wanted, same, "left_semi"), scan.files)


def collect_positions(rows: DataFrame, files: Iterable[LiveFile]) -> PositionsByFile:
    """The positions of a DataFrame's rows: they come to the driver as one bit a row."""

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
    places: PositionsByFile = {}
    for row in collected.to_pylist():
        if row[FILE] not in known:
            raise CorruptError(
                f"an object calls itself file {row[FILE]}, which is not of the table"
            )
        positions = from_bitmap(row["bitmap"])
        places[row[FILE]] = union([places.get(row[FILE], positions), positions])
    return places


def show_keys(
    runtime: Runtime, table: TableInfo, places: PositionsByFile, files: Iterable[DataFile]
) -> str:
    """A few of the keys that were found, for messages."""
    by_key = {file.key: file for file in files}
    file_key, positions = next(iter(places.items()))
    some = RowRange.at(by_key[file_key], positions[:3])
    rows = read_rows(runtime.storage, some, table.key_columns)
    return ", ".join(str(row) for row in plain_rows(rows))
