"""Window functions: the partitions that a change touches are computed before and after it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import (
    Rule,
    affected,
    column_items,
    difference,
    only_with,
    same_columns,
)
from tailrace.views.query.plan import Window
from tailrace.views.query.trees import items, select, sub


class WindowRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Window, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(same_columns(node.partition))
        query = b.rows(node.input, end, below)
        made = select([*items(node.input.columns), *column_items(node.items)], sub(query))
        lost = within is not None and (below is None or len(below.pairs) < len(within.pairs))
        return only_with(made, within, node.columns) if lost else made

    def delta(self, b: Builder, node: Window) -> exp.Query:
        if not node.partition:
            return difference(b, node, None)
        parts = b.touched(node.input, node.partition)
        return difference(b, node, affected(b, node.partition, parts))

    def touched(self, b: Builder, node: Window, columns: Sequence[str]) -> list[exp.Query]:
        if set(columns) <= set(node.partition):
            return b.touched(node.input, columns)
        return super().touched(b, node, columns)

    def tells(self, b: Builder, node: Window, columns: Sequence[str]) -> bool:
        return set(columns) <= set(node.partition) and b.tells(node.input, columns)
