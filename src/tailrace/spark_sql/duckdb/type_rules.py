"""Spark's rules for the types of results, of those types that DuckDB is asked about."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from typing import Any, TypeAlias

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.types import TIMESTAMP, TIMESTAMP_NTZ

DataType: TypeAlias = Any  # pa.DataType, of which mypy knows nothing
INT, BIGINT, DOUBLE = pa.int32(), pa.int64(), pa.float64()
TEXT, DATE, BOOLEAN, NULL = pa.string(), pa.date32(), pa.bool_(), pa.null()

# DuckDB's names of the types that it is asked about.
_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    INT: "INTEGER",
    BIGINT: "BIGINT",
    pa.float32(): "REAL",
    DOUBLE: "DOUBLE",
    TEXT: "VARCHAR",
    pa.binary(): "BLOB",
    DATE: "DATE",
    BOOLEAN: "BOOLEAN",
    TIMESTAMP: "TIMESTAMPTZ",
    TIMESTAMP_NTZ: "TIMESTAMP",
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, BIGINT: 20}
_MOST_DIGITS, _LEAST_SCALE = 38, 6


class DiffersError(Exception):
    """Spark may answer differently from DuckDB, so Spark has to be asked."""


def is_whole(kind: DataType) -> bool:
    """Whether it is tinyint, smallint, int or bigint."""
    return bool(pa.types.is_integer(kind))


def is_decimal(kind: DataType) -> bool:
    """Whether it is a decimal."""
    return bool(pa.types.is_decimal(kind))


def is_floating(kind: DataType) -> bool:
    """Whether it is float or double."""
    return bool(pa.types.is_floating(kind))


def is_exact(kind: DataType) -> bool:
    """Whether sums of its values do not depend on their order."""
    return is_whole(kind) or is_decimal(kind)


def duck_type(kind: DataType) -> exp.DataType:
    """A type as DuckDB knows it."""
    check(kind)
    return _parsed(_NAMES.get(kind) or f"DECIMAL({kind.precision},{kind.scale})").copy()


def check(kind: DataType) -> None:
    """Raise DiffersError for a type that DuckDB is not asked about."""
    if kind not in _NAMES and not is_decimal(kind):
        raise DiffersError(f"values of type {kind}")


@cache
def _parsed(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect="duckdb")


def as_decimal(kind: DataType) -> DataType:
    """The decimal type that holds every value of an exact type."""
    return kind if is_decimal(kind) else pa.decimal128(_DIGITS[kind], 0)


def literal_decimal(text: str) -> DataType:
    """The type of a literal: exactly its digits."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    if not 0 <= len(fraction) <= _MOST_DIGITS or digits > _MOST_DIGITS:
        raise DiffersError(f"a number of {digits} digits")
    return pa.decimal128(max(digits, len(fraction), 1), len(fraction))


def _bounded(precision: int, scale: int) -> DataType:
    """At most 38 digits: those after the point are cut first, down to six."""
    if precision <= _MOST_DIGITS:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    kept = max(_MOST_DIGITS - whole, min(scale, _LEAST_SCALE))
    return pa.decimal128(_MOST_DIGITS, kept)


def sum_of_two(a: DataType, b: DataType) -> DataType:
    """The type of a + b and a - b, for decimals."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return _bounded(whole + scale + 1, scale)


def product(a: DataType, b: DataType) -> DataType:
    """The type of a * b, for decimals."""
    return _bounded(a.precision + b.precision + 1, a.scale + b.scale)


def quotient(a: DataType, b: DataType) -> DataType:
    """The type of a / b, for decimals."""
    scale = max(_LEAST_SCALE, a.scale + b.precision + 1)
    return _bounded(a.precision - a.scale + b.scale + scale, scale)


def total(kind: DataType) -> DataType:
    """The type of a SUM."""
    if is_whole(kind):
        return BIGINT
    if is_decimal(kind):
        return pa.decimal128(min(kind.precision + 10, _MOST_DIGITS), kind.scale)
    if is_floating(kind):
        return DOUBLE
    raise DiffersError(f"the sum of values of type {kind}")


def average(kind: DataType) -> DataType:
    """The type of an AVG."""
    if is_decimal(kind):
        return pa.decimal128(
            min(kind.precision + 4, _MOST_DIGITS), min(kind.scale + 4, _MOST_DIGITS)
        )
    if is_whole(kind) or is_floating(kind):
        return DOUBLE
    raise DiffersError(f"the average of values of type {kind}")


def common(types: Iterable[DataType]) -> DataType:
    """The common type that branches of an expression, or compared values, are cast to."""
    return reduce(_common, types, NULL)


def _common(a: DataType, b: DataType) -> DataType:
    if b in (a, NULL):
        return a
    if a == NULL:
        return b
    if is_whole(a) and is_whole(b):
        return max(a, b, key=lambda kind: _DIGITS[kind])
    if is_exact(a) and is_exact(b):
        one, other = as_decimal(a), as_decimal(b)
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        if whole + scale <= _MOST_DIGITS:
            return pa.decimal128(whole + scale, scale)
    if DOUBLE in (a, b) and (is_exact(a) or is_exact(b)):
        return DOUBLE
    raise DiffersError(f"{a} beside {b}")
