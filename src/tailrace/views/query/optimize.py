"""Rewrites of a plan that leave its rows as they are: less is read, joined and kept.

`filtered` pushes a condition as far down as it goes; `pruned` leaves out the columns that nothing
above uses. An operator that several others read stays one: it keeps the columns that any of them
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from tailrace.views.query.plan import (
    Aggregate,
    Aggregation,
    Explode,
    Filter,
    InnerJoin,
    Item,
    JoinKind,
    KeyJoin,
    Limit,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
    users_first,
)
from tailrace.views.query.trees import column_of, columns_in, conjuncts, renamed


def filtered(node: Node, condition: exp.Expr) -> Node:
    """A node with only the rows for which a condition is true."""
    for part in conjuncts(condition):
        node = _filtered(node, part)
    return node


# One branch for each operator.
def _filtered(node: Node, condition: exp.Expr) -> Node:  # noqa: C901, PLR0912
    used = columns_in(condition)
    if isinstance(node, InnerJoin):
        for place, part in enumerate(node.parts):
            if used and used <= set(part.columns):
                parts = (*node.parts[:place], _filtered(part, condition), *node.parts[place + 1 :])
                return replace(node, parts=parts)
        return replace(node, conditions=(*node.conditions, condition))
    if not used:
        return Filter(input=node, condition=condition)
    if isinstance(node, Filter):
        below = _filtered(node.input, condition)
        if isinstance(below, Filter) and below.input is node.input:
            held = exp.Paren(this=condition) if isinstance(condition, exp.Or) else condition
            return replace(node, condition=exp.And(this=node.condition, expression=held))
        return replace(node, input=below)
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
    return Filter(input=node, condition=condition)


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


def pruned(node: Node, needed: set[str]) -> Node:
    """The same rows with the needed columns, and few others."""
    order = users_first(node)
    wanted: dict[Node, set[str]] = {one: set() for one in order}
    wanted[node] |= needed
    for one in order:
        for child, columns in zip(one.inputs, _of_inputs(one, wanted[one]), strict=True):
            wanted[child] |= columns & set(child.columns)
    narrowed: dict[Node, Node] = {}
    for one in reversed(order):
        narrowed[one] = _narrowed(one, wanted[one], [narrowed[child] for child in one.inputs])
    return narrowed[node]


def _kept(node: Union | Scan, needed: set[str]) -> list[int]:
    return [n for n, column in enumerate(node.columns) if column in needed] or [0]


def _needed_items(node: Project, needed: set[str]) -> tuple[Item, ...]:
    return tuple(item for item in node.items if item[0] in needed) or node.items[:1]


def _needed_calls(node: Aggregate, needed: set[str]) -> tuple[Aggregation, ...]:
    calls = tuple(call for call in node.calls if call.name in needed)
    return calls if calls or node.keys else node.calls  # one row, whose values nobody needs


# One branch for each operator.
def _of_inputs(node: Node, needed: set[str]) -> list[set[str]]:
    """The columns that it uses of each input."""
    if isinstance(node, Filter):
        return [needed | columns_in(node.condition)]
    if isinstance(node, Project):
        items = _needed_items(node, needed)
        return [{column for _, value in items for column in columns_in(value)}]
    if isinstance(node, Explode):
        return [needed | columns_in(node.call)]
    if isinstance(node, InnerJoin):
        return [needed.union(*node.used)] * len(node.parts)
    if isinstance(node, KeyJoin):
        used = needed | {c for tree in node.rest for c in columns_in(tree)}
        return [used | {column for pair in node.pairs for column in pair}] * 2
    if isinstance(node, Aggregate):
        calls = _needed_calls(node, needed)
        return [set(node.keys) | {c for call in calls for c in columns_in(call.call)}]
    if isinstance(node, Window):
        values = [value for name, value in node.items if name in needed]
        used = needed | set(node.partition)
        return [used | {column for value in values for column in columns_in(value)}]
    if isinstance(node, Limit):
        return [needed | {c for tree in node.order for c in columns_in(tree)}]
    if isinstance(node, Union):
        kept = _kept(node, needed)
        return [{part.columns[n] for n in kept} for part in node.parts]
    # Set operations and literal rows count by all of their columns.
    return [set(child.columns) for child in node.inputs]


# One branch for each operator.
def _narrowed(node: Node, needed: set[str], inputs: Sequence[Node]) -> Node:
    """A node over inputs that have been narrowed."""
    if isinstance(node, Scan):
        kept = _kept(node, needed)
        return replace(
            node,
            columns=tuple(node.columns[n] for n in kept),
            fields=tuple(node.fields[n] for n in kept),
        )
    if isinstance(node, Filter | Limit | Explode):
        return replace(node, input=inputs[0])
    if isinstance(node, Project):
        return replace(node, input=inputs[0], items=_needed_items(node, needed))
    if isinstance(node, InnerJoin):
        return replace(node, parts=tuple(inputs))
    if isinstance(node, KeyJoin):
        return replace(node, left=inputs[0], right=inputs[1])
    if isinstance(node, Aggregate):
        return replace(node, input=inputs[0], calls=_needed_calls(node, needed))
    if isinstance(node, Window):
        items = tuple(item for item in node.items if item[0] in needed)
        return replace(node, input=inputs[0], items=items) if items else inputs[0]
    if isinstance(node, Union):
        kept = _kept(node, needed)
        parts = tuple(
            _only(part, [was.columns[n] for n in kept])
            for part, was in zip(inputs, node.parts, strict=True)
        )
        return replace(node, parts=parts, columns=tuple(node.columns[n] for n in kept))
    if isinstance(node, SetOperation):
        left = _only(inputs[0], node.left.columns)
        right = _only(inputs[1], node.right.columns)
        return replace(node, left=left, right=right)
    return node


def _only(part: Node, wanted: Iterable[str]) -> Node:
    """Exactly these columns, in this order."""
    columns = tuple(wanted)
    if part.columns == columns:
        return part
    items = tuple((name, column_of(name)) for name in columns)
    return Project(input=part, items=items)
