"""SQL literals as Python values, where both certainly mean the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp


class NotALiteralError(ValueError):
    """The expression has to be computed."""


def rows_of(tree: exp.Expr, args: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of `VALUES (…), (…)`, if it has only literals."""
    beside = {name for name, value in tree.args.items() if value} - {"expressions", "alias"}
    if not isinstance(tree, exp.Values) or beside:  # ORDER BY, LIMIT
        raise NotALiteralError
    return [
        [value_of(one, args) for one in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in tree.expressions
    ]


def value_of(tree: Any, args: Mapping[str, Any]) -> Any:
    """The value of a literal, an array of them, a date or time, or a `:parameter`."""
    match tree:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(tree.this)
        case exp.Literal(is_string=True):
            return str(tree.this)
        case exp.Literal():
            return _number(str(tree.this))
        case exp.Neg():
            value = value_of(tree.this, args)
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                return -value
        case exp.Paren():
            return value_of(tree.this, args)
        case exp.Array():
            return [value_of(item, args) for item in tree.expressions]
        case exp.Placeholder() if tree.this in args:
            return args[tree.this]
        case exp.Cast() if isinstance(tree.this, exp.Literal) and tree.this.is_string:
            return _moment(tree)
    raise NotALiteralError


def _number(text: str) -> Any:
    if text.isdecimal():
        return int(text)
    # As in Spark: 1.5 is a decimal, 1e3 is a double.
    if "e" not in text.lower():
        return Decimal(text)
    number = float(text)
    if not math.isfinite(number):
        raise NotALiteralError
    return number


def _moment(tree: exp.Cast) -> Any:
    """`DATE '…'` and `TIMESTAMP '…'`, which sqlglot reads as casts of a text."""
    text = str(tree.this.this)
    try:
        if tree.to.this == exp.DataType.Type.DATE:
            return date.fromisoformat(text)
        if tree.to.this == exp.DataType.Type.TIMESTAMPTZ:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo:  # else it is meant in the zone of Spark's session
                return moment
    except ValueError:
        raise NotALiteralError from None
    raise NotALiteralError
