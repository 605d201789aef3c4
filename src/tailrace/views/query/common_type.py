"""The type in which values of two types can be compared without changing either.

Spark compares a text with a number, or a bigint with a double, by converting one of them; then
values that differ can equal the same third one: '1' and '01' are both 1. A key of one side would
find only some of its rows on the other, so rules must not look for rows by it. Within one kind
(exact numbers, floats, texts, moments) that cannot happen.
"""

from __future__ import annotations

from sqlglot import exp

_Type = exp.DataType.Type
# Whole numbers, and the digits of their largest value.
_WHOLE = {_Type.TINYINT: 3, _Type.SMALLINT: 5, _Type.INT: 10, _Type.BIGINT: 20}
_MOST_DIGITS = 38
# In each kind, the last type holds all values of the others.
_ORDERED = (
    (_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.BIGINT),
    (_Type.FLOAT, _Type.DOUBLE),
    (_Type.CHAR, _Type.VARCHAR, _Type.TEXT),
    (_Type.DATE, _Type.TIMESTAMPTZ),
)


def common_type(one: exp.DataType | None, other: exp.DataType | None) -> exp.DataType | None:
    """The wider of two types; None if there is none that holds both, or one is not known."""
    if one is None or other is None or _Type.UNKNOWN in (one.this, other.this):
        return None
    if one == other or other.this == _Type.NULL:
        return one
    if one.this == _Type.NULL:
        return other
    for kind in _ORDERED:
        if one.this in kind and other.this in kind:
            return max(one, other, key=lambda given: kind.index(given.this))
    return _common_decimal(one, other)


def _common_decimal(one: exp.DataType, other: exp.DataType) -> exp.DataType | None:
    digits = [_digits(one), _digits(other)]
    before = max((size[0] for size in digits if size), default=0)
    after = max((size[1] for size in digits if size), default=0)
    if None in digits or before + after > _MOST_DIGITS:
        return None
    return exp.DataType.build(f"decimal({before + after}, {after})", dialect="spark")


def _digits(given: exp.DataType) -> tuple[int, int] | None:
    """How many digits a number has before and after the point; None if it is not exact."""
    if given.this in _WHOLE:
        return _WHOLE[given.this], 0
    if given.this != _Type.DECIMAL:
        return None
    sizes = [int(part.name) for part in given.expressions] or [10]
    precision, scale = (*sizes, 0)[:2]
    return precision - scale, scale
