"""Rows from outside, made to fit a table's columns, or refused with the column and an example.

Owned here: what input is accepted. Every path into a table goes through `fit`, in the driver for
local input and in Spark's workers for a DataFrame. Python's values are looked at before Arrow
converts them (`_misfits`), because Arrow is lenient where a lake must not be: it cuts 1.5 to 1 and
a time to its date, turns 1e300 into an infinite float, takes a text for a list of its letters, and
drops a struct's fields that it doesn't know. What is out of range for a type that is right is left
to Arrow to refuse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.store.schema import Column, TableInfo

# Of a vector.
LARGEST_ELEMENT = 1e15
_CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def is_spark(rows: object) -> bool:
    """Whether rows are a Spark DataFrame, classic or Connect, without importing either."""
    return hasattr(rows, "mapInArrow") and hasattr(rows, "sparkSession")


def _is_pandas(rows: object) -> bool:
    """Whether rows are a pandas DataFrame, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def to_arrow(rows: object, table: TableInfo, columns: Sequence[Column]) -> pa.Table:
    """Local rows as an Arrow table with just these columns, by their names."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, list | tuple):
        return _from_dicts(rows, table, columns)
    if _is_pandas(rows):
        return _from_pandas(rows, table, columns)
    if not isinstance(rows, pa.Table):
        raise InvalidError(
            f"cannot write a {type(rows).__name__} to {table.full_name}: give a Spark or pandas "
            "DataFrame, a pyarrow Table, or a list of dicts"
        )
    names = match_names(rows.column_names, table, columns)
    return rows.select([names[column.name] for column in columns])


def only_columns(rows: Any, columns: Sequence[Column]) -> Any:
    """Rows of any form without the columns that are not asked for; none may be missing yet."""
    wanted = {column.name.casefold() for column in columns}
    if isinstance(rows, list | tuple):
        return [
            {k: v for k, v in row.items() if str(k).casefold() in wanted}
            if isinstance(row, dict)
            else row
            for row in rows
        ]
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not (isinstance(rows, pa.Table) or is_spark(rows) or _is_pandas(rows)):
        return rows
    names = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    kept = [name for name in names if str(name).casefold() in wanted]
    if is_spark(rows):
        return rows.select(*(types.quote(name) for name in kept))
    return rows.select(kept) if isinstance(rows, pa.Table) else rows[kept]


def match_names(
    given: Sequence[str], table: TableInfo, columns: Sequence[Column]
) -> dict[str, str]:
    """For each column, the name under which it was given; all must be there, and no others."""
    folded: dict[str, str] = {}
    for name in given:
        if not isinstance(name, str):
            raise InvalidError(f"{table.full_name}: the column name {show(name)} is not text")
        if name.casefold() in folded:
            raise InvalidError(f"{table.full_name}: the column {show(name)} was given twice")
        folded[name.casefold()] = name
    missing = [column.name for column in columns if column.name.casefold() not in folded]
    if missing:
        raise InvalidError(
            f"{table.full_name}: missing column {missing[0]!r}; given were {', '.join(given)}"
        )
    known = {column.name.casefold() for column in columns}
    unknown = [name for name in given if name.casefold() not in known]
    if unknown:
        raise InvalidError(
            f"{table.full_name}: unknown column {unknown[0]!r}; "
            f"expected are {', '.join(column.name for column in columns)}"
        )
    return {column.name: folded[column.name.casefold()] for column in columns}


def _from_dicts(rows: Sequence[Any], table: TableInfo, columns: Sequence[Column]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InvalidError(f"{table.full_name}: row {number} is not a dict but {show(row)}")
    shapes = {tuple(row) for row in rows}
    names: dict[str, str] = {column.name: column.name for column in columns}
    arrays = []
    for shape in shapes:
        names = match_names(shape, table, columns)
        if len(shapes) > 1 and any(key != given for key, given in names.items()):
            raise InvalidError(f"{table.full_name}: the rows spell {', '.join(shape)} differently")
    for column in columns:
        values = [row[names[column.name]] for row in rows]
        arrays.append(_array(values, table, column))
    return pa.table(arrays, names=[column.name for column in columns])


def _from_pandas(frame: Any, table: TableInfo, columns: Sequence[Column]) -> pa.Table:
    names = match_names(list(frame.columns), table, columns)
    arrays = []
    for column in columns:
        series = frame[names[column.name]]
        if series.dtype == object:
            # Python's values, of which any kind of missing one is NULL.
            pairs = zip(series, series.isna(), strict=True)
            arrays.append(_array([None if gone else v for v, gone in pairs], table, column))
        else:
            arrays.append(pa.Array.from_pandas(series))
    return pa.table(arrays, names=[column.name for column in columns])


def _array(values: list[Any], table: TableInfo, column: Column) -> pa.Array:
    wrong = _misfits(values, column.type)
    if wrong and isinstance(wrong[0], datetime) and "timestamp" in types.spark_type(column.type):
        zone = "without" if wrong[0].tzinfo else "with"
        raise InvalidError(
            f"{table.full_name}.{column.name} is {types.spark_type(column.type)}: "
            f"give {wrong[0]!r} {zone} a time zone"
        )
    if wrong:
        raise _misfit(table.full_name, column, wrong[0])
    try:
        return pa.array(values, column.type)
    except _CONVERSION_ERRORS as error:
        example = next((v for v in values if not _converts(v, column.type)), None)
        raise _misfit(table.full_name, column, example) from error


def _converts(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _CONVERSION_ERRORS:
        return False
    return True


def check_types(given: dict[str, pa.DataType], table: TableInfo, columns: Sequence[Column]) -> None:
    """Refuse types that can never fit, before any row is looked at."""
    for column in columns:
        kind = given[column.name]
        if not types.accepts(column.type, kind):
            raise InvalidError(
                f"{table.full_name}.{column.name} is {types.spark_type(column.type)}; "
                f"{kind} was given: convert it first"
            )


def fit(rows: pa.Table, table_name: str, columns: Sequence[Column]) -> pa.Table:
    """The rows with the columns' exact types and physical names; a misfit is an InvalidError."""
    arrays = []
    for column, array in zip(columns, rows.columns, strict=True):
        fitted = _cast(array, table_name, column)
        if not column.nullable and fitted.null_count:
            place = pc.index(pc.is_null(fitted), True).as_py()
            row = plain_rows(rows.slice(place, 1).rename_columns([c.name for c in columns]))[0]
            raise InvalidError(f"{table_name}.{column.name} must not be NULL, as it is in {row}")
        arrays.append(fitted)
    return pa.table(arrays, schema=pa.schema([column.field for column in columns]))


def check_vectors(rows: pa.Table, table: TableInfo) -> None:
    """Refuse vectors of another dimension than their column has, or with values not finite."""
    for column in table.columns:
        if column.dimension is None:
            continue
        array = rows.column(column.physical).combine_chunks()
        wrong = wrong_vectors(array, column.dimension)
        if not len(wrong):
            continue
        first = int(wrong[0])
        vector = array[first].as_py()
        has = (
            f"has {len(vector)} elements"
            if len(vector) != column.dimension
            else f"has one that is not finite, or beyond {LARGEST_ELEMENT:g}"
        )
        others = [c for c in table.key_columns or table.columns if c.dimension is None]
        row = rows.slice(first, 1).select([c.physical for c in others])
        raise InvalidError(
            f"{table.full_name}.{column.name} has a vector index: every value is NULL or "
            f"{column.dimension} finite numbers; the one of "
            f"{describe_key(plain_rows(row)[0], others)} {has}"
        )


def wrong_vectors(array: pa.Array, dimension: int) -> npt.NDArray[np.int64]:
    """The places of the vectors that have another dimension, or a value that is not finite."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    there = np.asarray(array.is_valid())
    lengths = pc.fill_null(pc.list_value_length(array), dimension).to_numpy(zero_copy_only=False)
    bad = there & (lengths != dimension)
    values = array.flatten()
    # Not beyond what can be squared and added up in single precision either.
    finite = pc.fill_null(pc.less_equal(pc.abs(values), LARGEST_ELEMENT), False)
    if len(values) and not pc.all(finite).as_py():
        owner = np.repeat(np.flatnonzero(there), lengths[there])
        bad[owner[~np.asarray(finite)]] = True
    return np.flatnonzero(bad)


def _cast(array: pa.ChunkedArray, table_name: str, column: Column) -> pa.ChunkedArray:
    target = column.field.type
    try:
        if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
            # In two steps, because Arrow asks for room for every bigint in the target.
            array = array.cast(pa.decimal128(20, 0))
        fitted = array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise _misfit(table_name, column, _first_misfit(array, target)) from error
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):
        # Arrow turns a double that is too large for a float into infinity without a word.
        lost = pc.and_(pc.is_inf(fitted), pc.is_finite(array))
        if pc.any(lost).as_py():
            raise _misfit(table_name, column, array[pc.index(lost, True).as_py()].as_py())
    return fitted


def _first_misfit(array: pa.ChunkedArray, target: pa.DataType) -> Any:
    """A value that doesn't fit, found by halving."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            half.cast(target)
        except pa.ArrowException:
            array = half
        else:
            array = array.slice(len(half))
    return _plain(array[0]) if len(array) else None


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        # A time that Python has no date for, as the number that it is.
        return value.value if hasattr(value, "value") else f"<{value.type}>"


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """A few rows as Python values, for messages."""
    return [
        {name: _plain(rows.column(place)[number]) for place, name in enumerate(rows.column_names)}
        for number in range(rows.num_rows)
    ]


def sort(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows in the order of some columns."""
    # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
    keys = pa.table([rows.column(name) for name in names], names=list(map(str, range(len(names)))))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
    return rows.take(order)


def _misfit(table_name: str, column: Column, example: Any) -> InvalidError:
    return InvalidError(
        f"{table_name}.{column.name} is {types.spark_type(column.type)}; "
        f"the value {example!r} does not fit"
    )


def check_sorted_unique(
    keys: pa.Table, before: pa.Table | None, table_name: str, columns: Sequence[Column]
) -> pa.Table | None:
    """Refuse a key that stands twice in sorted rows; returns the last key, for the next call."""
    joined = keys if before is None else pa.concat_tables([before, keys])
    if joined.num_rows == 0:
        return before
    same = None
    for array in joined.columns:
        equal = pc.equal(array.slice(1), array.slice(0, len(array) - 1))
        same = equal if same is None else pc.and_(same, equal)
    if same is not None and pc.any(same).as_py():
        doubled = plain_rows(joined.slice(1).filter(same).slice(0, 3))
        shown = ", ".join(str(describe_key(row, columns)) for row in doubled)
        raise InvalidError(f"{table_name}: the same key stands twice in the rows given: {shown}")
    return joined.slice(joined.num_rows - 1)


def describe_key(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """A key by its columns' names, for messages."""
    return {column.name: row[column.physical] for column in columns}


_INTEGERS = (int, np.integer)
_FLOATS = (float, np.floating)
# From here on, the nearest 32-bit float is infinite.
_FLOAT_LIMIT = 3.4028235677973366e38

# For each kind of column: the Python types it takes, and subclasses of them that it doesn't.
_TAKES: tuple[tuple[Callable[[pa.DataType], bool], tuple[Any, ...], tuple[Any, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_), ()),
    (pa.types.is_integer, _INTEGERS, (bool,)),
    (pa.types.is_floating, (*_FLOATS, *_INTEGERS), (bool,)),
    (pa.types.is_decimal, (Decimal, *_INTEGERS), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_binary, (bytes, bytearray, memoryview), ()),
    (pa.types.is_date, (date,), (datetime,)),
    (pa.types.is_timestamp, (datetime,), ()),
    (pa.types.is_map, (dict, list, tuple), ()),
    (pa.types.is_list, (list, tuple, np.ndarray), ()),
    (pa.types.is_struct, (dict,), ()),
)


def _misfits(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """At most one value that a column of this type doesn't take; an empty list if all fit."""
    given = [value for value in values if value is not None]
    _, taken, but_not = next(entry for entry in _TAKES if entry[0](kind))
    for one in set(map(type, given)):
        if not issubclass(one, taken) or issubclass(one, but_not):
            return [next(value for value in given if type(value) is one)]
    return _misfits_inside(given, kind)


def _misfits_inside(given: Sequence[Any], kind: pa.DataType) -> list[Any]:
    if pa.types.is_timestamp(kind):
        return _first(given, lambda value: (value.tzinfo is None) == (kind.tz is not None))
    if kind == pa.float32():
        return _first(given, _too_large)
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        return _first(given, lambda value: set(value) != names) or _any(
            _misfits((value[field.name] for value in given), field.type) for field in kind
        )
    if pa.types.is_map(kind):
        pairs = [value.items() if isinstance(value, dict) else value for value in given]
        return _first(chain(*pairs), lambda pair: len(pair) != 2) or _any(
            _misfits((pair[place] for pair in chain(*pairs)), child.type)
            for place, child in enumerate(types.children_of(kind))
        )
    if pa.types.is_list(kind):
        return _misfits(chain(*given), kind.value_type)
    return []


def _first(values: Iterable[Any], wrong: Callable[[Any], bool]) -> list[Any]:
    return next(([value] for value in values if wrong(value)), [])


def _any(results: Iterable[list[Any]]) -> list[Any]:
    return next((found for found in results if found), [])


def _too_large(value: Any) -> bool:
    return isinstance(value, _FLOATS) and _FLOAT_LIMIT <= abs(float(value)) < math.inf
