"""Rows of a table by the values of one column, found by the driver itself.

Like `keys`, it compares one row group at a time and skips files and row groups by their
statistics; other columns are read only where a value was found. It is for few values: a scan
that is too large for the driver is left to Spark (None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.spark_sql.types import is_atomic
from tailrace.store import stats
from tailrace.store.files import ColumnStats
from tailrace.store.keys import Bounds
from tailrace.store.parallel import each
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan, check_rows, group_starts, named_rows
from tailrace.store.schema import FILE, POS, Column

# Row groups that one task reads.
_GROUPS = 4
# Numbers up to which it is faster to look a value up than to hash it: a table of a byte each.
_TABLE_RANGE = 32_000_000
Flags = npt.NDArray[np.bool_]


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
    """Values of a column, and which ranges can hold one of them.

    As for Spark, NULL, NaN and zero are values, whatever the zero's sign.
    """

    def __init__(self, column: Column, values: pa.Array) -> None:
        self.column = column
        self.has_null = values.null_count > 0
        self.values = pc.unique(_plain_zeros(_as_type(values.drop_null(), column.type)))
        # No bounds say where a NaN is.
        self._has_nan = _is_float(column.type) and bool(pc.any(pc.is_nan(self.values)).as_py())
        self._sorted = None
        if pa.types.is_integer(column.type):
            self._sorted = np.sort(self.values.to_numpy(zero_copy_only=False))
        self._limits = stats.of_values(self.values) if len(self.values) else None

    def may_be_in(self, bounds: Bounds, nulls: int | None) -> bool:
        """Whether a value can be between two bounds; None is not known."""
        if self.has_null and nulls != 0:
            return True
        if not len(self.values):
            return False
        if bounds is None or self._has_nan:
            # No bounds: everything, or nothing but NULLs, which hold no value.
            return True
        if self._sorted is not None:
            at = int(np.searchsorted(self._sorted, bounds[0]))
            return at < len(self._sorted) and bool(self._sorted[at] <= bounds[1])
        limits = self._limits
        return limits is None or bool(limits[0] <= bounds[1] and bounds[0] <= limits[1])

    def found_in(self, column: pa.ChunkedArray) -> Flags:
        """Which of a column's values are wanted."""
        held = _plain_zeros(column.cast(self.column.type))
        if self._table is not None and not held.null_count:
            return self._looked_up(held.to_numpy())
        flags = pc.is_in(held, value_set=self.values, skip_nulls=True)
        if self.has_null:
            flags = pc.or_(flags, held.is_null())
        return np.asarray(flags.to_numpy(zero_copy_only=False), bool)

    @cached_property
    def _table(self) -> Flags | None:
        """For each whole number in a range that is not too wide, whether it is wanted."""
        if self._sorted is None or not len(self._sorted):
            return None
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - low >= _TABLE_RANGE:
            return None
        table = np.zeros(high - low + 1, bool)
        table[self._sorted.astype(np.int64) - low] = True
        return table

    def _looked_up(self, numbers: npt.NDArray[np.integer]) -> Flags:
        assert self._sorted is not None
        assert self._table is not None
        inside = (numbers >= self._sorted[0]) & (numbers <= self._sorted[-1])
        flags = np.zeros(len(numbers), bool)
        flags[inside] = self._table[numbers[inside].astype(np.int64) - int(self._sorted[0])]
        return flags


@dataclass(frozen=True, kw_only=True)
class _Task:
    live: LiveFile
    footer: pq.FileMetaData
    groups: tuple[int, ...]


def prune(scan: Scan, wanted: Wanted, known: Mapping[int, Mapping[int, ColumnStats]]) -> Scan:
    """The files that can hold a wanted value. `known`: statistics by file id."""
    kept = []
    for live in scan.files:
        found = live.file.stats if live.file.id < 0 else known.get(live.file.id, {}).values()
        own = next((s for s in found if s.column_id == wanted.column.id), None)
        bounds = stats.of_text(wanted.column.type, own)
        if own is None or wanted.may_be_in(bounds, own.nulls):
            kept.append(live)
    return replace(scan, files=tuple(kept))


def find_rows(
    runtime: Runtime,
    scan: Scan,
    wanted: Wanted,
    *,
    limit: int,
    where: pc.Expression | None = None,
    places: bool = False,
) -> pa.Table | None:
    """The rows with a wanted value, under the columns' names, with `places` also theirs.

    `scan` should be pruned, and its table narrowed to the columns that are needed. None if more
    than `limit` rows are found, or more values would have to be compared than the driver should.
    """
    tasks = list(_tasks(runtime, scan, wanted))
    total = sum(task.footer.row_group(group).num_rows for task in tasks for group in task.groups)
    if total > runtime.settings.local_keys:
        return None

    def run(task: _Task) -> list[pa.Table]:
        return _read(runtime, scan, task, wanted, where, places=places)

    schema = _schema(scan.table.columns, places=places)
    parts = [part for found in each(run, tasks) for part in found]
    if sum(part.num_rows for part in parts) > limit:
        return None
    return pa.concat_tables([schema.empty_table(), *parts])


def _tasks(runtime: Runtime, scan: Scan, wanted: Wanted) -> list[_Task]:
    tasks = []
    for live in scan.files:
        with runtime.storage.open_read(live.file.path) as source:
            footer = pq.ParquetFile(source).metadata
        check_rows(runtime.storage, live.file, footer)
        place = stats.leaves(footer).get(wanted.column.physical)
        groups = []
        for group in range(footer.num_row_groups):
            if place is None:  # written before the column was added: NULL in all rows
                if wanted.has_null:
                    groups.append(group)
                continue
            chunk = footer.row_group(group).column(place).statistics
            bounds = None if chunk is None else stats.of_chunk(wanted.column.type, chunk)
            if wanted.may_be_in(bounds, None if chunk is None else chunk.null_count):
                groups.append(group)
        for start in range(0, len(groups), _GROUPS):
            some = tuple(groups[start : start + _GROUPS])
            tasks.append(_Task(live=live, footer=footer, groups=some))
    return tasks


def _read(
    runtime: Runtime,
    scan: Scan,
    task: _Task,
    wanted: Wanted,
    where: pc.Expression | None,
    *,
    places: bool,
) -> list[pa.Table]:
    columns = scan.table.columns
    dead = task.live.dead(runtime, scan.at) if task.live.has_deletes else None
    starts = group_starts(task.footer)
    parts = []
    with runtime.storage.open_read(task.live.file.path) as source:
        parquet = pq.ParquetFile(source, metadata=task.footer)
        present = set(parquet.schema_arrow.names)
        names = [c.physical for c in columns if c.physical in present]
        for group in task.groups:
            count = task.footer.row_group(group).num_rows
            mask = np.ones(count, bool)
            if wanted.column.physical in present:
                held = parquet.read_row_group(
                    group, columns=[wanted.column.physical], use_threads=False
                )
                mask = wanted.found_in(held.column(0))
            if dead is not None:
                low, high = np.searchsorted(dead, [starts[group], starts[group] + count])
                mask[dead[low:high] - starts[group]] = False
            if not mask.any():
                continue
            rows = parquet.read_row_group(group, columns=names, use_threads=False)
            rows = rows.filter(pa.array(mask))
            made = named_rows(rows, columns, rows.num_rows if names else int(mask.sum()))
            if places:
                found = np.flatnonzero(mask) + starts[group]
                made = made.append_column(
                    FILE, pa.array(np.full(len(found), task.live.file.key, np.int64))
                ).append_column(POS, pa.array(found, pa.int64()))
            made = pa.table(made.columns, schema=_schema(columns, places=places))
            parts.append(made if where is None else made.filter(where))
    return parts


def _schema(columns: Sequence[Column], *, places: bool) -> pa.Schema:
    fields = [pa.field(c.name, c.type) for c in columns]
    if places:
        fields += [pa.field(FILE, pa.int64()), pa.field(POS, pa.int64())]
    return pa.schema(fields)
