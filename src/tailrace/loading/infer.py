"""Infers the types of columns from a sample of a file's first rows.

Always true: a type is inferred only if it loses nothing of the sample. So digits with a leading
zero or a plus stay text, and so do whole numbers that are too large for a bigint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.loading.convert import fits
from tailrace.spark_sql import types
from tailrace.spark_sql.types import TIMESTAMP, TIMESTAMP_NTZ

Columns = dict[str, pa.DataType]  # by name, in order; null: nothing was seen

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^(-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|-?inf(inity)?))$"
_TRUTH = r"^(?i:true|false)$"


def of_texts(texts: pa.Array, *, numbers: bool = True) -> pa.DataType:
    """The narrowest type that fits all texts."""
    there = pc.utf8_trim_whitespace(texts.drop_null())
    there = there.filter(pc.not_equal(there, ""))
    if not len(there):
        return pa.null() if texts.null_count == len(texts) else pa.string()
    if numbers:
        if _all(there, _TRUTH):
            return pa.bool_()
        if _all(there, _NUMBER):
            whole = there.filter(pc.match_substring_regex(there, _WHOLE))
            if not fits(whole, pa.int64()) or not fits(there, pa.float64()):
                return pa.string()
            return pa.int64() if len(whole) == len(there) else pa.float64()
    for kind in (pa.date32(), TIMESTAMP_NTZ, TIMESTAMP):
        if fits(there, kind):
            return kind
    return pa.string()


def _all(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def of_objects(rows: Sequence[dict[str, Any]]) -> Columns:
    """The columns of JSON objects."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    return {key: _of_values(seen) for key, seen in values.items()}


def _of_values(values: list[Any]) -> pa.DataType:
    texts = [value for value in values if isinstance(value, str)]
    if texts and all(value is None or isinstance(value, str) for value in values):
        return of_texts(pa.array(texts, pa.string()), numbers=False)
    return _widest(_of_value(value) for value in values)


def _of_value(value: Any) -> pa.DataType:
    if value is None or value == {}:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, list):
        return types.list_of(_widest(_of_value(one) for one in value))
    if isinstance(value, dict):
        return pa.struct([(key, _of_value(one)) for key, one in value.items()])
    return pa.string()


def _widest(kinds: Iterable[pa.DataType]) -> pa.DataType:
    widest = pa.null()
    for kind in kinds:
        widest = wider(widest, kind)
    return widest


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both; text if there is no other."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return types.list_of(wider(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in one}
        for f in other:
            fields[f.name] = wider(fields.get(f.name, pa.null()), f.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(min(38, whole + scale), scale)
    if {one, other} == {pa.date32(), TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    if _is_number(one) and _is_number(other):
        if pa.types.is_floating(one) or pa.types.is_floating(other):
            return pa.float64()
        return max(one, other, key=lambda kind: kind.bit_width)
    return pa.string()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def settled(kind: pa.DataType) -> pa.DataType:
    """A type that a column can have: text where no value was seen."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return types.map_of(settled(kind.key_type), settled(kind.item_type))
    if pa.types.is_list(kind):
        return types.list_of(settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(settled(f.type)) for f in kind])
    return kind


def merged(files: Iterable[Columns]) -> Columns:
    """The columns of several files: each name once, whatever its case, with the widest type."""
    merged_columns: Columns = {}
    spelled: dict[str, str] = {}
    for columns in files:
        for name, kind in columns.items():
            known = spelled.setdefault(name.casefold(), name)
            merged_columns[known] = wider(merged_columns.get(known, pa.null()), kind)
    return merged_columns
