"""Window functions: the partitions that a change touches are computed before and after it."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import Builder
from tailrace.views.incremental.rules.rule import GroupRule, affected, column_items, difference
from tailrace.views.query.plan import Window
from tailrace.views.query.trees import items, select, sub


class WindowRule(GroupRule):
    """See the module."""

    def by(self, node: Window) -> tuple[str, ...]:
        return node.partition

    def over(self, node: Window, query: exp.Query) -> exp.Select:
        return select([*items(node.input.columns), *column_items(node.items)], sub(query))

    def delta(self, b: Builder, node: Window) -> exp.Query:
        if not node.partition:
            return difference(b, node, None)
        parts = b.touched(node.input, node.partition)
        return difference(b, node, affected(b, node.partition, parts))
