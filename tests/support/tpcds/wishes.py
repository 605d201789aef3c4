"""What the queries ask for: values of columns that their conditions compare with constants.

A wish is for one row of a table: values that meet one condition together, such as the class and
the category of an item. Columns of TPC-DS have names of their own, so the name tells the table.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Of one condition, how many combinations of its alternatives are told apart.
MOST = 200

Wish = dict[str, Any]


def collect(texts: Iterable[str], schemas: Mapping[str, pa.Schema]) -> dict[str, list[Wish]]:
    """The wishes by table, each once."""
    kinds = {
        field.name: (table, field.type) for table, schema in schemas.items() for field in schema
    }
    found: dict[str, list[Wish]] = {table: [] for table in schemas}
    for text in texts:
        for where in sqlglot.parse_one(text, read="spark").find_all(exp.Where):
            for wish in _wishes(where.this):
                for table, own in _by_table(wish, kinds).items():
                    if own not in found[table]:
                        found[table].append(own)
    return found


def _wishes(condition: exp.Expression) -> list[Wish]:
    """Values that meet a condition, as far as constants say so: one for each alternative."""
    condition = condition.unnest()
    match condition:
        case exp.And():
            sides = (_wishes(condition.left), _wishes(condition.right))
            both = [{**a, **b} for a, b in itertools.product(*sides)]
            return both[:: 1 + len(both) // MOST]
        case exp.Or():
            return [*_wishes(condition.left), *_wishes(condition.right)]
        case exp.EQ(this=exp.Column() as column, expression=value):
            values = [_constant(value)]
        case exp.In(this=exp.Column() as column, expressions=[*several]):
            values = [_constant(value) for value in several]
        case exp.Between(this=exp.Column() as column):
            values = [_constant(condition.args["low"])]
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
            sides = (_constant(value.left), _constant(value.right))
            return None if None in sides else str(sum(Decimal(str(side)) for side in sides))
    return None


def _by_table(wish: Wish, kinds: Mapping[str, tuple[str, pa.DataType]]) -> dict[str, Wish]:
    """The parts of a wish by table, in the columns' types."""
    found: dict[str, Wish] = {}
    for column, text in wish.items():
        table, kind = kinds.get(column, ("", None))
        if kind is None:
            continue
        try:
            value = pa.scalar(text).cast(kind).as_py()
        except pa.ArrowInvalid:  # compared with something of another type
            continue
        found.setdefault(table, {})[column] = value
    return found
