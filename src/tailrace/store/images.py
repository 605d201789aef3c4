"""Whether rows are the same, column by column and all the way into nested values.

Two images are the same if nothing could tell them apart: NULL is NULL, NaN is NaN, and 0.0 is not
-0.0. Arrow has no such comparison for nested types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark_sql import types

Flags = npt.NDArray[np.bool_]


def same_rows(left: pa.Table, right: pa.Table) -> Flags:
    """For two tables of one shape, whether row n of one is the same as row n of the other."""
    result = np.ones(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        result &= _same(_flat(one), _flat(other))
    return result


def _flat(column: pa.ChunkedArray) -> pa.Array:
    merged = column.combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def _same(left: pa.Array, right: pa.Array) -> Flags:
    null_left, null_right = (
        array.is_null().to_numpy(zero_copy_only=False) for array in (left, right)
    )
    kind = left.type
    if pa.types.is_floating(kind):
        bits = np.int32 if kind == pa.float32() else np.int64
        values = [pc.fill_null(array, 0).to_numpy().view(bits) for array in (left, right)]
        equal = values[0] == values[1]
    elif pa.types.is_struct(kind):
        equal = np.ones(len(left), bool)
        for index in range(kind.num_fields):
            equal &= _same(pc.struct_field(left, [index]), pc.struct_field(right, [index]))
    elif not types.is_atomic(kind):
        equal = _same_lists(left, right, ~(null_left | null_right))
    else:
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    same: Flags = (null_left & null_right) | (~null_left & ~null_right & equal)
    return same


def _same_lists(left: pa.Array, right: pa.Array, both: Flags) -> Flags:
    """Lists and maps: of one length, and the same in each place."""
    result = np.zeros(len(left), bool)
    lengths = [_lengths(array) for array in (left, right)]
    rows = np.flatnonzero(both & (lengths[0] == lengths[1]))
    inside = [_inside(array.take(pa.array(rows))) for array in (left, right)]
    equal = np.logical_and.reduce([_same(*pair) for pair in zip(*inside, strict=True)])
    differs = np.concatenate([[0], np.cumsum(~equal)])
    ends = np.cumsum(lengths[0][rows])
    starts = ends - lengths[0][rows]
    result[rows] = differs[ends] == differs[starts]
    return result


def _inside(array: pa.Array) -> list[pa.Array]:
    """What lists without NULLs hold, end to end; of maps, the keys and the values."""
    return [array.keys, array.items] if pa.types.is_map(array.type) else [array.flatten()]


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    # By the offsets, which maps have like lists; Arrow's own function takes lists only.
    lengths: npt.NDArray[np.int64] = np.diff(array.offsets.to_numpy()).astype(np.int64)
    return lengths
