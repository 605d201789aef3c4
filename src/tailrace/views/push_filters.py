"""Brings a condition as far down a plan as it goes, so that less is read and joined."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tailrace.views.plan import (
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
from tailrace.views.scope import column_of, columns_in, conjuncts, renamed


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
            both = exp.and_(node.condition.copy(), condition.copy(), copy=False)
            return replace(node, condition=both)
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
    elif isinstance(node, Union):
        parts = tuple(
            _filtered(
                part,
                renamed(
                    condition,
                    {
                        name: column_of(own)
                        for name, own in zip(node.columns, part.columns, strict=True)
                    },
                ),
            )
            for part in node.parts
        )
        return replace(node, parts=parts)
    return Filter(columns=node.columns, input=node, condition=condition)
