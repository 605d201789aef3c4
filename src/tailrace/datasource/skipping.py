"""Which files can hold a row that a query asks for, by its conditions and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tailrace.store import stats
from tailrace.store.files import ColumnStats
from tailrace.store.schema import Column

# What a file's bounds must satisfy, given the least and greatest value of a condition.
_POSSIBLE: dict[type[Filter], Callable[[Any, Any, Any, Any], bool]] = {
    EqualTo: lambda low, high, least, most: bool(low <= most and least <= high),
    EqualNullSafe: lambda low, high, least, most: bool(low <= most and least <= high),
    In: lambda low, high, least, most: bool(low <= most and least <= high),
    LessThan: lambda low, _high, _least, most: bool(low < most),
    LessThanOrEqual: lambda low, _high, _least, most: bool(low <= most),
    GreaterThan: lambda _low, high, least, _most: bool(high > least),
    GreaterThanOrEqual: lambda _low, high, least, _most: bool(high >= least),
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A comparison of a column with values, which every row of the result satisfies."""

    column: Column
    kind: type[Filter]
    least: Any  # as statistics have them
    most: Any


def understood(filters: Iterable[Filter], columns: Sequence[Column]) -> list[Condition]:
    """The filters that statistics can say something to, where that is beyond doubt."""
    by_name = {column.name: column for column in columns}
    found = []
    for given in filters:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        value: Any = getattr(given, "value", None)
        column = by_name.get(path[0]) if len(path) == 1 else None
        if type(given) not in _POSSIBLE or column is None or not _compares(column.type):
            continue
        bounds = _bounds(list(value) if isinstance(given, In) else [value], column.type)
        if bounds is not None:
            found.append(
                Condition(column=column, kind=type(given), least=bounds[0], most=bounds[1])
            )
    return found


def _compares(kind: pa.DataType) -> bool:
    """Not floats, where NaN is the greatest, and nothing that has no order."""
    exact = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_date)
    return any(is_kind(kind) for is_kind in exact)


def _bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    try:
        return stats.of_values(pa.chunked_array([pa.array(values, kind)]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # not a value that the column can have


def may_match(known: Mapping[int, ColumnStats], conditions: Iterable[Condition]) -> bool:
    """Whether a file can hold a row that satisfies all; its statistics are by column id."""
    for condition in conditions:
        bounds = stats.of_text(condition.column.type, known.get(condition.column.id))
        possible = _POSSIBLE[condition.kind]
        if bounds is not None and not possible(*bounds, condition.least, condition.most):
            return False
    return True
