"""Groups: those that a change touches are computed before and after it.

If the whole query ends in sums and counts, less will do: see `stored_delta`.
"""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import Builder, Within
from tailrace.views.incremental.rules.rule import GroupRule, affected, difference
from tailrace.views.query.plan import Aggregate
from tailrace.views.query.trees import items, select, sub


class AggregateRule(GroupRule):
    """See the module."""

    def by(self, node: Aggregate) -> tuple[str, ...]:
        return node.keys

    def over(self, node: Aggregate, query: exp.Query) -> exp.Select:
        calls = [exp.alias_(call.call.copy(), call.name, copy=False) for call in node.calls]
        groups = select([*items(node.keys), *calls], sub(query))
        return groups.group_by(*items(node.keys), copy=False) if node.keys else groups

    def delta(self, b: Builder, node: Aggregate) -> exp.Query:
        return difference(b, node, affected_groups(b, node) if node.keys else None)


def affected_groups(b: Builder, node: Aggregate) -> Within:
    """The groups that a change touches, by the keys that the change alone tells."""
    direct = [key for key in node.keys if b.tells(node.input, [key])]
    if not direct or not b.tells(node.input, direct):
        direct = direct[:1] or list(node.keys)
    return affected(b, direct, b.touched(node.input, direct))
