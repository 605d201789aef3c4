"""Groups: those that a change touches are computed before and after it.

Sums and counts of the whole query need less than that: see `stored_delta`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import (
    Rule,
    affected,
    difference,
    only_with,
    same_columns,
)
from tailrace.views.query.plan import Aggregate
from tailrace.views.query.trees import items, select, sub


class AggregateRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Aggregate, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(same_columns(node.keys))
        query = b.rows(node.input, end, below)
        calls = [exp.alias_(call.call.copy(), call.name, copy=False) for call in node.calls]
        made = select([*items(node.keys), *calls], sub(query))
        if node.keys:
            made = made.group_by(*items(node.keys), copy=False)
        lost = within is not None and (below is None or len(below.pairs) < len(within.pairs))
        return only_with(made, within, node.columns) if lost else made

    def delta(self, b: Builder, node: Aggregate) -> exp.Query:
        if not node.keys:
            return difference(b, node, None)
        return difference(b, node, affected_groups(b, node))

    def touched(self, b: Builder, node: Aggregate, columns: Sequence[str]) -> list[exp.Query]:
        if set(columns) <= set(node.keys):
            return b.touched(node.input, columns)
        return super().touched(b, node, columns)

    def tells(self, b: Builder, node: Aggregate, columns: Sequence[str]) -> bool:
        return set(columns) <= set(node.keys) and b.tells(node.input, columns)


def affected_groups(b: Builder, node: Aggregate) -> Within:
    """The groups that a change touches, by the keys that are known from the change alone."""
    direct = [key for key in node.keys if b.tells(node.input, [key])]
    if not direct or not b.tells(node.input, direct):
        direct = direct[:1] or list(node.keys)
    return affected(b, direct, b.touched(node.input, direct))
