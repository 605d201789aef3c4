"""What is stored for each group of a view that is merged: the states of its functions.

A change adds to a state without looking at other rows (`states`), and what the query shows follows
from the states (`result`).

Always true: a value derived from a sum and a count equals that of Spark's own function, to the
last bit. Where that is not certain, the group is recomputed (`again`).

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
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.types import spark_type
from tailrace.views.incremental.layout import ROWS, Call, Layout
from tailrace.views.incremental.program import WEIGHT
from tailrace.views.query.trees import any_of, column_of

# The types of the stored table's columns, and of averages, by what programs call them.
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


def case(condition: exp.Expr, value: Any, default: Any = None) -> exp.Expr:
    """A value on a condition; else the default, or NULL."""
    other = None if default is None else exp.convert(default)
    return exp.Case(ifs=[exp.If(this=condition, true=exp.convert(value))], default=other)


def _is_null(tree: exp.Expr) -> exp.Expr:
    return tree.is_(exp.null())


# --- computed from rows ----------------------------------------------------------------------


def names(layout: Layout) -> list[str]:
    """The stored states."""
    calls = [n for c in layout.calls for n in (c.total, c.count, c.extreme, c.spread) if n]
    return [ROWS, *calls]


def computed(layout: Layout, types: Types, *, exact: bool) -> list[tuple[str, exp.Expr]]:
    """The states of a group's rows, and its averages by Spark's own function.

    `exact`: sums of whole numbers are, in any order.
    """
    states: list[tuple[str, exp.Expr]] = [(ROWS, exp.Count(this=exp.Star()))]
    for call in layout.calls:
        if call.extreme is not None:
            states.append((call.extreme, call.source.call.copy()))
        if call.count is not None:
            states.append((call.count, exp.Count(this=call.argument.copy())))
        if call.total is not None:
            total: exp.Expr = exp.Sum(this=_summand(call, types))
            if exact and types.get(call.total) == pa.int64():
                # Spark's own sum may overflow on the way to one that fits.
                total = _cast(exp.Sum(this=_signed_summand(call, types)), pa.int64())
            states.append((call.total, total))
        if call.spread is not None:
            states.append((call.spread, exp.Sum(this=_absolute(call))))
        if call.is_average:
            states.append((call.source.name, call.source.call.copy()))
    return states


def _summand(call: Call, types: Types) -> exp.Expr:
    argument = call.argument.copy()
    return _cast(argument, _DOUBLE) if types.get(call.source.name) == _DOUBLE else argument


def _signed_summand(call: Call, types: Types) -> exp.Expr:
    """The same, where it may also be subtracted."""
    if types.get(call.total or "") == pa.int64():
        return _cast(call.argument.copy(), _WHOLE)
    return _summand(call, types)


def _absolute(call: Call) -> exp.Expr:
    return exp.Abs(this=_cast(call.argument.copy(), _DOUBLE))


# --- merged ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class State:
    """How a change is merged into a state."""

    name: str
    change: exp.Expr | None  # what the changed rows of a group add; None for NULL
    stored: exp.Expr
    merge: type[exp.Expr]
    # On which result of `change` the state may have moved; None: only together with another.
    moved: exp.Expr | None = None


def states(layout: Layout, types: Types) -> list[State]:
    """The states, and what tells whether an extreme is still one: the deleted, and the stored."""
    came = column_of(WEIGHT) > 0
    merged = [_sum(ROWS, column_of(WEIGHT))]
    for call in layout.calls:
        tree = call.argument
        if call.count is not None:
            merged.append(_sum(call.count, case(_is_null(tree), 0, column_of(WEIGHT))))
        if call.total is not None:
            summand = _signed_summand(call, types)
            stored: exp.Expr = column_of(call.total)
            if types.get(call.total) == pa.int64():  # in the type of what is added
                stored = _cast(stored, _SUM)
            merged.append(_sum(call.total, case(came.copy(), summand, -exp.paren(summand)), stored))
        if call.spread is not None:
            # It never falls: doubles that were added are not subtracted exactly.
            more = exp.Sum(this=case(came.copy(), _absolute(call)))
            own = column_of(call.spread)
            merged.append(State(name=call.spread, change=more, stored=own, merge=exp.Sum))
        if call.extreme is not None:
            function, own, gone = type(call.source.call), column_of(call.extreme), _gone(call)
            for name, condition, stored in (
                (call.extreme, came.copy(), own),
                (gone, exp.not_(came), exp.Null()),
            ):
                change = function(this=case(condition, tree.copy()))
                moved = exp.not_(_is_null(column_of(name)))
                merged.append(
                    State(name=name, change=change, stored=stored, merge=function, moved=moved)
                )
            merged.append(State(name=_kept(call), change=None, stored=own.copy(), merge=function))
    return merged


def _sum(name: str, summand: exp.Expr, stored: exp.Expr | None = None) -> State:
    return State(
        name=name,
        change=exp.Sum(this=summand),
        stored=column_of(name) if stored is None else stored,
        merge=exp.Sum,
        moved=column_of(name).neq(0),
    )


def _gone(call: Call) -> str:
    return f"{call.extreme}_gone"


def _kept(call: Call) -> str:
    return f"{call.extreme}_kept"


def again(layout: Layout, types: Types) -> exp.Expr:
    """Whether a group has to be recomputed.

    A deleted value may have been its least or greatest, or its average is not certain from its sum
    and count.
    """
    doubts: list[exp.Expr] = []
    for call in layout.calls:
        if call.extreme is not None:
            gone, kept = column_of(_gone(call)), column_of(_kept(call))
            less = kept < gone if call.is_min else kept > gone
            safe = exp.Coalesce(this=less, expressions=[exp.false()])
            doubts.append(exp.and_(exp.not_(_is_null(gone)), exp.not_(safe)))
        elif call.is_average:
            doubts += _doubts(call, types)
    if not doubts:
        return exp.false()
    assert layout.groups is not None
    stays = column_of(ROWS) > 0 if layout.groups.keys else exp.true()
    doubtful = exp.and_(stays, exp.paren(any_of(doubts)))
    return exp.Coalesce(this=doubtful, expressions=[exp.false()])


# --- shown -----------------------------------------------------------------------------------


def result(call: Call, types: Types | None = None) -> exp.Expr:
    """What a function gives, from its states; without types, not for averages."""
    if call.extreme is not None:
        return column_of(call.extreme)
    if isinstance(call.source.call, exp.Count):
        return column_of(call.count or ROWS)
    assert call.total is not None
    assert call.count is not None
    if types is not None and call.is_average:
        return exp.paren(_average(call, types), copy=False)
    return exp.paren(case(column_of(call.count) > 0, column_of(call.total)), copy=False)


def _average(call: Call, types: Types) -> exp.Expr:
    """The average from a sum and a count; NULL without values, or in doubt."""
    count = column_of(call.count or "")
    total: exp.Expr = column_of(call.total or "")
    kind, held = types.get(call.source.name), types.get(call.total or "")
    sure: list[exp.Expr] = [count > 0]
    sure += [exp.not_(doubt) for doubt in _doubts(call, types)]
    if kind is None or held is None or kind == _DOUBLE:
        value: exp.Expr = exp.Div(this=total, expression=count)
    else:
        if held.precision > _SUM_DIGITS:
            total = _cast(total, pa.decimal128(_SUM_DIGITS, min(held.scale, _SUM_DIGITS)))
        value = _cast(exp.Div(this=total, expression=_cast(count, _COUNT)), kind)
    return case(exp.and_(*sure, copy=False), value)


def _doubts(call: Call, types: Types) -> list[exp.Expr]:
    """Conditions on which an average is not certain from its sum and count."""
    kind, held = types.get(call.source.name), types.get(call.total or "")
    if kind is None or held is None:
        return []
    if kind == _DOUBLE:
        if call.spread is None:
            return [exp.true()]
        return [column_of(call.spread) > _EXACT]
    whole = _SUM_DIGITS - held.scale
    if whole < 1:  # no digit is left before the point
        return [exp.true()]
    total, count = column_of(call.total or ""), column_of(call.count or "")
    conditions: list[exp.Expr] = [count >= _MOST_ROWS]
    if held.precision - held.scale > whole:
        most = _cast(exp.Literal.string(str(10**whole - 1)), held)
        conditions += [total > most, total < -most]
    return conditions
