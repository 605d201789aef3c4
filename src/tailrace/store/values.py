"""Python values, looked at before Arrow converts them.

Arrow is lenient where a lake must not be: it cuts 1.5 to 1 and a time to its date, turns 1e300
into an infinite float, takes a text for a list of its letters, and drops a struct's fields that
it doesn't know. Owned here: which Python types a column takes. What is out of range for a type
that is right is left to Arrow to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.spark_sql import types

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


def misfits(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
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
            misfits((value[field.name] for value in given), field.type) for field in kind
        )
    if pa.types.is_map(kind):
        pairs = [value.items() if isinstance(value, dict) else value for value in given]
        return _first(chain(*pairs), lambda pair: len(pair) != 2) or _any(
            misfits((pair[place] for pair in chain(*pairs)), child.type)
            for place, child in enumerate(types.children_of(kind))
        )
    if pa.types.is_list(kind):
        return misfits(chain(*given), kind.value_type)
    return []


def _first(values: Iterable[Any], wrong: Callable[[Any], bool]) -> list[Any]:
    return next(([value] for value in values if wrong(value)), [])


def _any(results: Iterable[list[Any]]) -> list[Any]:
    return next((found for found in results if found), [])


def _too_large(value: Any) -> bool:
    return isinstance(value, _FLOATS) and _FLOAT_LIMIT <= abs(float(value)) < math.inf
