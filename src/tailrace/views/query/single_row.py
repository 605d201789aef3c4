"""Whether a plan has at most one row, whatever the tables hold."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from tailrace.views.query.plan import (
    Aggregate,
    Filter,
    InnerJoin,
    JoinKind,
    KeyJoin,
    Limit,
    Node,
    OneRow,
    Project,
    Window,
)
from tailrace.views.query.scope import EXACT_TYPES, conjuncts

Types = Mapping[str, exp.DataType]


def is_one_row(node: Node) -> bool:
    """Exactly one: an aggregate of everything."""
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys


def is_single_row(node: Node, types: Types) -> bool:
    """At most one. `types` are those of the plan's columns, as far as they are known."""
    if isinstance(node, Aggregate):
        return set(node.keys) <= _pinned(node.input, types)
    if isinstance(node, Limit) and node.count is not None:
        return node.count <= 1 or is_single_row(node.input, types)
    if isinstance(node, InnerJoin):
        return all(is_single_row(part, types) for part in node.parts)
    if isinstance(node, KeyJoin) and node.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return is_single_row(node.left, types)
    if isinstance(node, Filter | Project | Window | Limit):
        return is_single_row(node.input, types)
    return isinstance(node, OneRow)


def _pinned(node: Node, types: Types) -> set[str]:
    """Columns that a condition fixes to one value in all rows."""
    if isinstance(node, Filter):
        pairs = (_compared(part, types) for part in conjuncts(node.condition))
        return _pinned(node.input, types) | {column for column in pairs if column is not None}
    if isinstance(node, Project):
        below = _pinned(node.input, types)
        return {
            n for n, value in node.items if isinstance(value, exp.Column) and value.name in below
        }
    if isinstance(node, InnerJoin):
        columns = {column for part in node.parts for column in _pinned(part, types)}
        return columns | {column for column, same in node.equal.items() if same & columns}
    if isinstance(node, KeyJoin) and node.kind is not JoinKind.FULL:
        return _pinned(node.left, types)
    return set()


def _compared(condition: exp.Expr, types: Types) -> str | None:
    """The column that a condition fixes, by a literal of its type that only one value equals."""
    if not isinstance(condition, exp.EQ):
        return None
    sides = [condition.left, condition.right]
    if isinstance(sides[0], exp.Literal):
        sides.reverse()
    column, literal = sides
    if not isinstance(column, exp.Column) or not isinstance(literal, exp.Literal):
        return None
    kind = types.get(column.name)
    if kind is None:
        return None
    if literal.is_string:
        return column.name if kind == exp.DataType.build("string", dialect="spark") else None
    exact = kind.this in EXACT_TYPES and "e" not in literal.this.lower()
    return column.name if exact else None
