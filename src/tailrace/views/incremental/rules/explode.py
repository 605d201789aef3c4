"""A generator of rows: applied to rows and to changes alike."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, same_columns, weighted, with_rest
from tailrace.views.query.plan import Explode
from tailrace.views.query.trees import from_query


class ExplodeRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Explode, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(same_columns(node.input.columns))
        rows = self._over(node, b.rows(node.input, end, below), weight=False)
        return with_rest(rows, within, below, node.columns)

    def delta(self, b: Builder, node: Explode) -> exp.Query:
        below = b.delta(node.input)
        assert below is not None
        return self._over(node, below, weight=True)

    def tells_all(self, b: Builder, node: Explode) -> bool:
        return b.tells_all(node.input)

    def _over(self, node: Explode, query: exp.Query, *, weight: bool) -> exp.Query:
        names = [exp.to_identifier(name) for name in node.added]
        lateral = exp.Lateral(
            this=node.call.copy(),
            view=True,
            outer=node.outer or None,
            alias=exp.TableAlias(this=exp.to_identifier("x"), columns=names),
        )
        exploded = from_query(query, weighted(node.columns, weight=weight))
        exploded.append("laterals", lateral)
        return exploded
