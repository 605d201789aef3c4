"""Finds rows of a table by their keys, or by the values of one column.

First the files that cannot hold one are left out by their statistics. What remains is searched by
this process, one row group at a time, while that is cheaper than a Spark job; other columns are
read only where something was found. Keys are else found by a Spark join; a search for values that
is too large is left to the caller (None).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import CorruptError
from tailrace.spark_sql import types
from tailrace.spark_sql.types import is_atomic
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
from tailrace.store.reader import Batch, read_rows
from tailrace.store.rows import plain_rows
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, LiveFile, Scan, Search
from tailrace.store.schema import FILE, HIDDEN, POS, Column, TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_scan import load, local_frame, to_df
from tailrace.store.stats import Bounds, FileStats, Flags, Known, known_of, overlap
from tailrace.store.write import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Numbers = npt.NDArray[np.integer]
# One wanted number for so many sorted ones is looked for by halving, rather than by hashing all.
_FEW = 64
# Values that are put in order, other than whole numbers, for which it takes no time.
_MOST_ORDERED = 10_000
# Looking at the statistics of all row groups takes as long as comparing one row in so many.
_LAYOUTS = 16
# Whole numbers are compared so many times as fast as texts.
_CHEAP = 4
# Numbers up to which it is faster to look a value up than to hash it: a table of a byte each.
_TABLE_RANGE = 32_000_000


def can_hold(column: pa.DataType, values: pa.DataType) -> bool:
    """Whether values of a type can be looked for as they are: text and numbers differ in more."""
    return bool(
        (column == values and is_atomic(column))
        or (pa.types.is_integer(column) and pa.types.is_integer(values))
        or (pa.types.is_decimal(column) and pa.types.is_decimal(values))
    )


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as those of a column; without those that no row can have."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        kept = []
        for value in values:
            try:
                kept.append(value.cast(kind))
            except pa.ArrowInvalid:
                continue
        return pa.array([one.as_py() for one in kept], kind)


def _plain_zeros(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values that are compared by their bits: zeros of different signs are equal."""
    return pc.add(values, pa.scalar(0.0, values.type)) if _is_float(values.type) else values


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


class Wanted:
    """A `Filter` of the rows that have one of some values in a column.

    As for Spark, NULL, NaN and zero are values, whatever the zero's sign.
    """

    def __init__(self, column: Column, values: pa.Array) -> None:
        self.column = column
        self.looks_at = (column,)
        self.has_null = values.null_count > 0
        self.values = pc.unique(_plain_zeros(_as_type(values.drop_null(), column.type)))
        # No bounds say where a NaN is.
        self._has_nan = _is_float(column.type) and bool(pc.any(pc.is_nan(self.values)).as_py())
        self._sorted: Numbers | None = None
        if pa.types.is_integer(column.type):
            self._sorted = np.sort(self.values.to_numpy(zero_copy_only=False))
        self._limits = stats.of_values(self.values) if len(self.values) else None
        # To see whether one is between two bounds.
        self._order: Sequence[Any] | Numbers | None = self._sorted
        if self._order is None and len(self.values) <= _MOST_ORDERED:
            self._order = sorted(stats.as_bounds(self.values).to_pylist())

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        found = known(self.column)
        bounds = found.bounds
        if self.has_null and found.nulls != 0:
            return True
        if not len(self.values) or found.only_nulls:
            return False
        if bounds is None or self._has_nan:
            # No bounds: everything, or nothing but NULLs, which hold no value.
            return True
        if self._order is None:
            return overlap(self._limits, bounds)
        at = bisect_left(self._order, bounds[0])
        return at < len(self._order) and bool(self._order[at] <= bounds[1])

    def found_in(self, rows: pa.Table) -> Flags:
        held, wanted = _plain_zeros(rows.column(0)), self.values
        if self._sorted is not None and len(self._sorted) and not held.null_count:
            numbers = held.to_numpy()
            if np.all(numbers[:-1] <= numbers[1:]):  # as in the first column of a key
                near = _between(self._sorted, numbers)
                if len(near) * _FEW <= len(numbers):
                    return _in_sorted(numbers, near)
                wanted = pa.array(near)
            elif self._table is not None:
                return self._looked_up(numbers)
        flags = pc.is_in(held, value_set=wanted, skip_nulls=True)
        if self.has_null:
            flags = pc.or_(flags, held.is_null())
        return np.asarray(flags.to_numpy(zero_copy_only=False), bool)

    def _looked_up(self, numbers: Numbers) -> Flags:
        assert self._sorted is not None
        assert self._table is not None
        inside = (numbers >= self._sorted[0]) & (numbers <= self._sorted[-1])
        flags = np.zeros(len(numbers), bool)
        flags[inside] = self._table[numbers[inside].astype(np.int64) - int(self._sorted[0])]
        return flags

    @cached_property
    def _table(self) -> Flags | None:
        """For each whole number in a range that is not too wide, whether it is wanted."""
        assert self._sorted is not None
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - low >= _TABLE_RANGE:
            return None
        table = np.zeros(high - low + 1, bool)
        table[self._sorted.astype(np.int64) - low] = True
        return table


def _between(wanted: Numbers, numbers: Numbers) -> Numbers:
    """The wanted numbers from the first to the last of sorted ones."""
    if not len(numbers):
        return wanted[:0]
    start = np.searchsorted(wanted, numbers[0])
    return wanted[start : np.searchsorted(wanted, numbers[-1], "right")]


def _in_sorted(numbers: Numbers, wanted: Numbers) -> Flags:
    """Which of many sorted numbers are among a few."""
    flags = np.zeros(len(numbers), bool)
    starts, ends = np.searchsorted(numbers, wanted), np.searchsorted(numbers, wanted, "right")
    for start, end in zip(starts, ends, strict=True):
        flags[start:end] = True
    return flags


class Found(NamedTuple):
    """What a search has found."""

    rows: pa.Table | None  # None: Spark has to be asked
    searched: int  # rows of the row groups that were looked at


def find_rows(
    runtime: Runtime,
    scan: Scan,
    wanted: Wanted,
    *,
    limit: int,
    where: pc.Expression | None = None,
    places: bool = False,
) -> Found:
    """The rows with a wanted value, under the columns' names, with `places` also theirs.

    `scan` should be pruned, and its table narrowed to the columns that are needed. No rows if more
    than `limit` rows are found, or more values would have to be compared than the driver should.
    """
    search = Search(runtime, scan, wanted)
    if not Budget.of(runtime.settings).covers_search(search.rows):
        return Found(None, 0)
    schema = _schema(scan.table.columns, places=places)

    def use(live: LiveFile, batch: Batch) -> pa.Table:
        arrays = batch.rows.columns
        if places:
            count = len(batch.positions)
            arrays += [pa.repeat(live.file.key, count), pa.array(batch.positions)]
        found = pa.table(arrays, schema=schema)
        return found if where is None else found.filter(where)

    parts = search.run(scan.table.columns, lambda live: live.visible(runtime, scan.at), use)
    if sum(part.num_rows for part in parts) > limit:
        return Found(None, search.rows)
    return Found(pa.concat_tables([schema.empty_table(), *parts]), search.rows)


def _schema(columns: Sequence[Column], *, places: bool) -> pa.Schema:
    hidden = HIDDEN if places else ()
    return pa.schema([(column.name, column.type) for column in (*columns, *hidden)])


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

    @cached_property
    def _first(self) -> Wanted | None:
        """The first column, if it is at hand."""
        if self.local is None:
            return None
        return Wanted(self.looks_at[0], self.local.column(0).combine_chunks())

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        if self._first is not None and not self._first.may_hold(known):
            return False
        bounds = tuple(known(column).bounds for column in self.looks_at)
        return any(
            all(overlap(a, b) for a, b in zip(piece, bounds, strict=True)) for piece in self.pieces
        )

    def found_in(self, rows: pa.Table) -> Flags:
        assert self.local is not None
        assert self._first is not None
        flags = self._first.found_in(rows)
        if rows.num_columns == 1 or not flags.any():
            return flags
        # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
        names = [str(number) for number in range(rows.num_columns)]
        near = np.flatnonzero(flags)
        rows = rows.rename_columns(names).take(pa.array(near)).append_column(POS, pa.array(near))
        joined = rows.join(self.local.rename_columns(names), keys=names, join_type="left semi")
        flags = np.zeros(len(flags), bool)
        flags[joined.column(POS).to_numpy()] = True
        return flags


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
    budget = Budget.of(runtime.settings)
    if keys.local is not None and budget.covers_search(pruned.rows // _LAYOUTS):
        search = Search(runtime, pruned, keys)
        # Numbers are decoded and compared in a fraction of the time that texts take.
        is_cheap = all(pa.types.is_integer(column.type) for column in keys.looks_at)
        if budget.covers_search(search.rows // _CHEAP if is_cheap else search.rows):
            return _find_locally(search)
    return _find_with_spark(runtime, keys, pruned)


def _find_locally(search: Search) -> PositionsByFile:
    def every(live: LiveFile) -> RowRange:
        return RowRange.of(live.file)

    found: dict[int, list[Positions]] = {}
    for key, positions in search.run(
        (), every, lambda live, batch: (live.file.key, batch.positions)
    ):
        found.setdefault(key, []).append(positions)
    places = {}
    for live in search.scan.files:
        # Which rows are deleted is asked only if there is something to find.
        if live.file.key in found:
            dead = live.dead(search.runtime, search.scan.at) if live.has_deletes else NONE
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
