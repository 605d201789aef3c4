"""Sums and averages that are maintained: what is stored for them, and what they give.

Always true: a value derived from a sum and a count equals that of Spark's own function, to the
last bit. Where that is not certain (`doubts`), the group is recomputed.

- Whole numbers are summed as decimals: a sum may be larger on the way than in the end, and the
  least number of a type has no positive twin.
- Spark averages whole numbers as doubles. That is exact in any order as long as no sum on the way
  can exceed 2^53; to know, the sum of all absolute values is kept, those of deleted rows included
  (`spread`).
- Spark divides a decimal sum to 39 places, and then rounds to the places of the average. Our
  quotient has thirteen places more than the sum, so nine more than the average. The two ways of
  rounding differ only if a quotient is closer to a half than those places show, without being
  one; with a count of nine digits it cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.types import spark_type
from tailrace.views.incremental.layout import Call
from tailrace.views.query.trees import column_of

Types = Mapping[str, pa.DataType]

_DOUBLE = pa.float64()
# Types for every whole number, and for sums of them.
_WHOLE, _SUM = pa.decimal128(20, 0), pa.decimal128(30, 0)
# The digits of a sum, and the type of a count, whose quotient has thirteen places more.
_SUM_DIGITS, _COUNT = 25, pa.decimal128(12, 0)
_MOST_ROWS = 10**9
_EXACT = 2**52  # half of where doubles stop counting: the spread is a sum of doubles itself


def _cast(tree: exp.Expr, kind: pa.DataType) -> exp.Expr:
    return exp.cast(tree, spark_type(kind), dialect="spark")


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def summand(call: Call, types: Types) -> exp.Expr:
    """What is summed."""
    argument = call.argument.copy()
    return _cast(argument, _DOUBLE) if types.get(call.source.name) == _DOUBLE else argument


def signed_summand(call: Call, types: Types) -> exp.Expr:
    """The same, where it may also be subtracted."""
    if types.get(call.total or "") == pa.int64():
        return _cast(call.argument.copy(), _WHOLE)
    return summand(call, types)


def wide(total: exp.Expr, kind: pa.DataType | None) -> exp.Expr:
    """A stored sum, in the type of what is added to it."""
    return _cast(total, _SUM) if kind == pa.int64() else total


def spread(call: Call) -> exp.Expr:
    """What is summed for the spread."""
    return exp.Abs(this=_cast(call.argument.copy(), _DOUBLE))


def from_states(call: Call, types: Types) -> exp.Expr:
    """The average from a sum and a count; NULL without values, or in doubt."""
    count = column_of(call.count or "")
    total: exp.Expr = column_of(call.total or "")
    kind, held = types.get(call.source.name), types.get(call.total or "")
    sure: list[exp.Expr] = [exp.GT(this=count.copy(), expression=_number(0))]
    sure += [exp.not_(doubt) for doubt in doubts(call, types)]
    if kind is None or held is None or kind == _DOUBLE:
        value: exp.Expr = exp.Div(this=total, expression=count)
    else:
        if held.precision > _SUM_DIGITS:
            total = _cast(total, pa.decimal128(_SUM_DIGITS, min(held.scale, _SUM_DIGITS)))
        value = _cast(exp.Div(this=total, expression=_cast(count, _COUNT)), kind)
    return exp.Case(ifs=[exp.If(this=exp.and_(*sure, copy=False), true=value)])


def doubts(call: Call, types: Types) -> list[exp.Expr]:
    """Conditions on which an average is not certain from its sum and count."""
    kind, held = types.get(call.source.name), types.get(call.total or "")
    if kind is None or held is None:
        return []
    if kind == _DOUBLE:
        if call.spread is None:
            return [exp.true()]
        return [exp.GT(this=column_of(call.spread), expression=_number(_EXACT))]
    whole = _SUM_DIGITS - held.scale
    if whole < 1:  # no digit is left before the point
        return [exp.true()]
    total, count = column_of(call.total or ""), column_of(call.count or "")
    conditions: list[exp.Expr] = [exp.GTE(this=count, expression=_number(_MOST_ROWS))]
    if held.precision - held.scale > whole:
        most = _cast(exp.Literal.string(str(10**whole - 1)), held)
        conditions.append(exp.GT(this=total, expression=most))
        conditions.append(exp.LT(this=total.copy(), expression=exp.Neg(this=most.copy())))
    return conditions
