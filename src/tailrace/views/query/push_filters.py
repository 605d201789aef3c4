"""Pushes a condition as far down a plan as it goes, so that less is read and joined."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tailrace.views.query.plan import (
    Aggregate,
    Filter,
    InnerJoin,
    JoinKind,
    KeyJoin,
    Node,
    Project,
    Union,
    Window,
)
from tailrace.views.query.scope import column_of, columns_in, conjuncts, renamed


def filtered(node: Node, condition: exp.Expr) -> Node:
    """A node with only the rows for which a condition is true."""
    for part in conjuncts(condition):
        node = _filtered(node, part)
    return node


# One branch for each operator.
def _filtered(node: Node, condition: exp.Expr) -> Node:  # noqa: C901, PLR0912
    used = columns_in(condition)
    if not used:
        return Filter(columns=node.columns, input=node, condition=condition)
    if isinstance(node, Filter):
        below = _filtered(node.input, condition)
        if isinstance(below, Filter) and below.input is node.input:
            held = exp.Paren(this=condition) if isinstance(condition, exp.Or) else condition
            return replace(node, condition=exp.And(this=node.condition, expression=held))
        return replace(node, input=below)
    if isinstance(node, InnerJoin):
        for place, part in enumerate(node.parts):
            if used <= set(part.columns):
                parts = (*node.parts[:place], _filtered(part, condition), *node.parts[place + 1 :])
                return replace(node, parts=parts)
        return replace(node, conditions=(*node.conditions, condition))
    if isinstance(node, KeyJoin) and node.kind is not JoinKind.FULL:
        if used <= set(node.left.columns):
            return replace(node, left=_filtered(node.left, condition))
    elif isinstance(node, Project):
        values = dict(node.items)
        if all(isinstance(values[name], exp.Column) for name in used):
            return replace(node, input=_filtered(node.input, renamed(condition, values)))
    elif isinstance(node, Aggregate):
        if used <= set(node.keys):
            return replace(node, input=_filtered(node.input, condition))
    elif isinstance(node, Window):
        if used <= set(node.partition):
            return replace(node, input=_filtered(node.input, condition))
    elif isinstance(node, Union) and used.isdisjoint(node.converted):
        left: list[Node] = []
        for part in node.parts:
            names = dict(zip(node.columns, map(column_of, part.columns), strict=True))
            own = renamed(condition, names)
            known = _decided(part, own)
            if known is not False:
                left.append(part if known else _filtered(part, own))
        if left:
            return replace(node, parts=tuple(left))
    return Filter(columns=node.columns, input=node, condition=condition)


def _decided(node: Node, condition: exp.Expr) -> bool | None:
    """Whether a condition on a literal value is true; None if that is not certain."""
    while isinstance(node, Filter):
        node = node.input
    if not isinstance(node, Project) or not isinstance(condition, exp.EQ):
        return None
    values = dict(node.items)
    sides = [
        values[side.name] if isinstance(side, exp.Column) else side
        for side in (condition.left, condition.right)
    ]
    if not all(isinstance(side, exp.Literal) and side.is_string for side in sides):
        return None
    one, other = (side.name for side in sides)
    if one == other:
        return True
    # A session may have texts compared without regard to case, or to spaces at their end.
    return False if one.strip().casefold() != other.strip().casefold() else None
