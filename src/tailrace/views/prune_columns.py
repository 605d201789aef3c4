"""Leaves out the columns that nothing above uses."""

from __future__ import annotations

from dataclasses import replace

from tailrace.views.plan import (
    Aggregate,
    Explode,
    Filter,
    InnerJoin,
    JoinKind,
    KeyJoin,
    Limit,
    Node,
    Project,
    Scan,
    Union,
    Window,
)
from tailrace.views.scope import columns_in


# One branch for each operator.
def pruned(node: Node, needed: set[str]) -> Node:  # noqa: C901, PLR0912
    """The same rows with at least the needed columns, and as few others as are easily had."""
    if isinstance(node, Scan):
        kept = [n for n, column in enumerate(node.columns) if column in needed] or [0]
        return replace(
            node,
            columns=tuple(node.columns[n] for n in kept),
            fields=tuple(node.fields[n] for n in kept),
        )
    if isinstance(node, Filter):
        below = pruned(node.input, needed | columns_in(node.condition))
        return replace(node, input=below, columns=below.columns)
    if isinstance(node, Project):
        items = tuple(item for item in node.items if item[0] in needed) or node.items[:1]
        used = {column for _, value in items for column in columns_in(value)}
        columns = tuple(name for name, _ in items)
        return replace(node, input=pruned(node.input, used), items=items, columns=columns)
    if isinstance(node, Explode):
        below = pruned(node.input, (needed - set(node.made)) | columns_in(node.call))
        return replace(node, input=below, columns=(*below.columns, *node.made))
    if isinstance(node, InnerJoin):
        used = needed | {c for tree in node.conditions for c in columns_in(tree)}
        parts = tuple(pruned(part, used & set(part.columns)) for part in node.parts)
        columns = tuple(column for part in parts for column in part.columns)
        return replace(node, parts=parts, columns=columns)
    if isinstance(node, KeyJoin):
        used = needed | {c for tree in node.rest for c in columns_in(tree)}
        used |= {column for pair in node.pairs for column in pair}
        left = pruned(node.left, used & set(node.left.columns))
        right = pruned(node.right, used & set(node.right.columns))
        columns = left.columns
        if node.kind in (JoinKind.LEFT, JoinKind.FULL):
            columns = (*columns, *right.columns)
        return replace(node, left=left, right=right, columns=columns)
    if isinstance(node, Aggregate):
        calls = tuple(call for call in node.calls if call.name in needed)
        used = set(node.keys) | {c for call in calls for c in columns_in(call.call)}
        columns = (*node.keys, *(call.name for call in calls))
        if not columns:  # one row, of which nobody asks anything but that it is there
            return replace(node, input=pruned(node.input, _all(node)))
        return replace(node, input=pruned(node.input, used), calls=calls, columns=columns)
    if isinstance(node, Window):
        items = tuple(item for item in node.items if item[0] in needed)
        used = (needed - {name for name, _ in items}) | set(node.partition)
        used |= {column for _, value in items for column in columns_in(value)}
        below = pruned(node.input, used & set(node.input.columns))
        if not items:
            return below
        columns = (*below.columns, *(name for name, _ in items))
        return replace(node, input=below, items=items, columns=columns)
    if isinstance(node, Limit):
        used = needed | {c for tree in node.order for c in columns_in(tree)}
        below = pruned(node.input, used)
        return replace(node, input=below, columns=below.columns)
    if isinstance(node, Union):
        kept = [n for n, column in enumerate(node.columns) if column in needed] or [0]
        parts = tuple(_only(part, [part.columns[n] for n in kept]) for part in node.parts)
        return replace(node, parts=parts, columns=tuple(node.columns[n] for n in kept))
    # Set operations and literal rows count by all of their columns.
    return _with_inputs(node)


def _all(node: Aggregate) -> set[str]:
    return set(node.keys) | {c for call in node.calls for c in columns_in(call.call)}


def _only(part: Node, wanted: list[str]) -> Node:
    """Exactly these columns, in this order."""
    from tailrace.views.scope import column_of

    below = pruned(part, set(wanted))
    if list(below.columns) == wanted:
        return below
    items = tuple((name, column_of(name)) for name in wanted)
    return Project(columns=tuple(wanted), input=below, items=items)


def _with_inputs(node: Node) -> Node:
    from tailrace.views.plan import SetOperation

    if isinstance(node, SetOperation):
        left = _only(node.left, list(node.left.columns))
        right = _only(node.right, list(node.right.columns))
        return replace(node, left=left, right=right)
    return node
