"""Rows in a form that tests compare: plain values, in an order of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def bag(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples. NULLs sort first, any types sort, and NaN equals NaN."""
    columns = ([_plain(value) for value in column.to_pylist()] for column in rows.columns)
    return sorted(zip(*columns, strict=True), key=_order)


def _plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def column(rows: pa.Table, name: str) -> list[Any]:
    """The values of one column, sorted."""
    return sorted(rows.column(name).to_pylist(), key=lambda value: _order((value,)))


def _order(row: tuple[Any, ...]) -> list[tuple[bool, str, Any]]:
    return [
        (value is not None, type(value).__name__, value if _sorts(value) else repr(value))
        for value in row
    ]


def _sorts(value: Any) -> bool:
    return isinstance(value, int | str | bytes)
