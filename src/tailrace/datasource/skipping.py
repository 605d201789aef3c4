"""What a query's conditions say to statistics: files and row groups are skipped by these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from tailrace.store.schema import Column
from tailrace.store.stats import Comparison

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def understood(filters: Iterable[Filter], columns: Sequence[Column]) -> Iterator[Comparison]:
    """The filters that statistics can say something to, where that is beyond doubt."""
    by_name = {column.name: column for column in columns}
    for given in filters:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        value: Any = getattr(given, "value", None)
        column = by_name.get(path[0]) if len(path) == 1 else None
        operator = _OPERATORS.get(type(given))
        if operator is None or column is None or not _compares(column.type):
            continue
        bounds = _bounds(list(value) if isinstance(given, In) else [value], column.type)
        if bounds is not None:
            yield Comparison(column=column, operator=operator, least=bounds[0], most=bounds[1])


def _compares(kind: pa.DataType) -> bool:
    """Not floats, where NaN is the greatest, and nothing that has no order."""
    exact = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_date)
    return any(is_kind(kind) for is_kind in exact)


def _bounds(values: list[Any], kind: pa.DataType) -> stats.Bounds:
    try:
        return stats.of_values(pa.chunked_array([pa.array(values, kind)]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # not a value that the column can have
