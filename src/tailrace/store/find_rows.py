"""Rows of a table by the values of one column, found by the driver itself.

Like `keys`, it compares one row group at a time and skips files and row groups by their
statistics; other columns are read only where a value was found. It is for few values: a scan
that is too large for the driver is left to Spark (None).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark_sql.types import is_atomic
from tailrace.store import stats
from tailrace.store.reader import Batch
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, LiveFile, Scan, Search
from tailrace.store.schema import HIDDEN, Column
from tailrace.store.stats import Flags, Known, overlap

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
        self._sorted = None
        if pa.types.is_integer(column.type):
            self._sorted = np.sort(self.values.to_numpy(zero_copy_only=False))
        self._limits = stats.of_values(self.values) if len(self.values) else None

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
        if self._sorted is not None:
            at = int(np.searchsorted(self._sorted, bounds[0]))
            return at < len(self._sorted) and bool(self._sorted[at] <= bounds[1])
        return overlap(self._limits, bounds)

    def found_in(self, rows: pa.Table) -> Flags:
        held = _plain_zeros(rows.column(0))
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
