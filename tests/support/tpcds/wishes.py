"""What the queries ask for: values of columns that their conditions compare with constants.

A wish is what one query asks of the rows that it joins, such as a category of items and a month:
values by table that meet its conditions together. Columns of TPC-DS have names of their own, so
the name tells the table.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Of one condition, how many combinations of its alternatives are told apart.
MOST = 20

Values = dict[str, Any]
# What a value is that is just on the right side of a number.
NEXT = {exp.GT: 1, exp.GTE: 0, exp.LT: -1, exp.LTE: 0}


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The tables that a query joins, and the values that it asks for, by table."""

    tables: frozenset[str]
    values: dict[str, Values]


def collect(texts: Iterable[str], schemas: Mapping[str, pa.Schema]) -> list[Wish]:
    """The wishes of all queries."""
    kinds = {
        field.name: (table, field.type) for table, schema in schemas.items() for field in schema
    }
    found: list[Wish] = []
    for text in texts:
        for select in sqlglot.parse_one(text, read="spark").find_all(exp.Select):
            where = select.args.get("where")
            named = {table.name.lower() for table in _joined(select)} & schemas.keys()
            if where is None or not named:
                continue
            for values in _alternatives(where.this):
                wish = Wish(tables=frozenset(named), values=_by_table(values, kinds))
                if wish.values and wish not in found:
                    found.append(wish)
    return found


def _joined(select: exp.Select) -> Iterable[exp.Table]:
    for part in (
        select.args.get("from_") or select.args.get("from"),
        *select.args.get("joins", []),
    ):
        if part is not None:
            yield from part.find_all(exp.Table)


def _alternatives(condition: exp.Expression) -> list[Values]:
    """Values that meet a condition, as far as constants say so: one for each alternative."""
    condition = condition.unnest()
    match condition:
        case exp.And():
            sides = (_alternatives(condition.left), _alternatives(condition.right))
            both = [{**b, **a} for a, b in itertools.product(*sides)]
            return both[:: 1 + (len(both) - 1) // MOST]
        case exp.Or():
            return [*_alternatives(condition.left), *_alternatives(condition.right)]
        case exp.EQ(this=exp.Column() as column, expression=value):
            values = [_constant(value)]
        case exp.In(this=exp.Column() as column, expressions=[*several]):
            values = [_constant(value) for value in several]
        case exp.Between(this=exp.Column() as column):
            values = [_constant(condition.args["low"])]
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() if isinstance(condition.this, exp.Column):
            column = condition.this
            values = [_moved(_constant(condition.expression), NEXT[type(condition)])]
        case _:
            return [{}]
    return [{column.name.lower(): value} for value in values if value is not None] or [{}]


def _constant(value: exp.Expression) -> str | None:
    """A constant's text, if it is one."""
    value = value.unnest()
    match value:
        case exp.Literal():
            return str(value.this)
        case exp.Cast():
            return _constant(value.this)
        case exp.Neg():
            inner = _constant(value.this)
            return None if inner is None else f"-{inner}"
        case exp.Add():
            left, right = _constant(value.left), _constant(value.right)
            return None if left is None or right is None else str(Decimal(left) + Decimal(right))
    return None


def _moved(value: str | None, by: int) -> str | None:
    """A number's text, so much further; no other text."""
    is_number = value is not None and value.lstrip("-").replace(".", "", 1).isdigit()
    return str(Decimal(value) + by) if is_number and value is not None else None


def _by_table(values: Values, kinds: Mapping[str, tuple[str, pa.DataType]]) -> dict[str, Values]:
    """Values by table, in the columns' types."""
    found: dict[str, Values] = {}
    for column, text in values.items():
        table, kind = kinds.get(column, ("", None))
        if kind is None:
            continue
        try:
            value = pa.scalar(text).cast(kind).as_py()
        except pa.ArrowInvalid:  # compared with something of another type
            continue
        found.setdefault(table, {})[column] = value
    return found
