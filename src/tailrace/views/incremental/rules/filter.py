"""A condition: applied to rows and to changes alike."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, weighted
from tailrace.views.query.plan import Filter
from tailrace.views.query.scope import all_of, conjuncts
from tailrace.views.query.trees import from_query


class FilterRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Filter, end: End, within: Within | None) -> exp.Query:
        return self._over(node, b.rows(node.input, end, within), weight=False)

    def delta(self, b: Builder, node: Filter) -> exp.Query:
        below = b.delta(node.input)
        assert below is not None
        return self._over(node, below, weight=True)

    def _over(self, node: Filter, query: exp.Query, *, weight: bool) -> exp.Query:
        return from_query(query, weighted(node.columns, weight=weight)).where(
            all_of(conjuncts(node.condition)), copy=False
        )

    def touched(self, b: Builder, node: Filter, columns: Sequence[str]) -> list[exp.Query]:
        if node.is_simple:
            return super().touched(b, node, columns)
        return b.touched(node.input, columns)

    def tells(self, b: Builder, node: Filter, columns: Sequence[str]) -> bool:
        return b.tells(node.input, columns)

    def tells_all(self, b: Builder, node: Filter) -> bool:
        return b.tells_all(node.input)
