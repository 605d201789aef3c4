"""The first rows in an order, inside a query: computed as a whole, before and after."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, difference, only_with
from tailrace.views.query.plan import Limit
from tailrace.views.query.trees import from_query


class LimitRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Limit, end: End, within: Within | None) -> exp.Query:
        query = from_query(b.rows(node.input, end), node.columns)
        query = query.order_by(*(tree.copy() for tree in node.order), copy=False)
        if node.count is not None:
            query = query.limit(node.count, copy=False)
        if node.offset:
            query = query.offset(node.offset, copy=False)
        return only_with(from_query(query, node.columns), within, node.columns)

    def delta(self, b: Builder, node: Limit) -> exp.Query:
        return difference(b, node, None)
