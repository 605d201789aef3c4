"""Literal rows: they never change."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule
from tailrace.views.query.plan import Values
from tailrace.views.query.trees import items, select


class ConstantRule(Rule):
    """See the module."""

    def rows(
        self,
        b: Builder,  # noqa: ARG002
        node: Any,
        end: End,  # noqa: ARG002
        within: Within | None,  # noqa: ARG002
    ) -> exp.Query:
        if isinstance(node, Values):
            rows = node.rows.copy()
            names = [exp.to_identifier(name) for name in node.columns]
            rows.set("alias", exp.TableAlias(this=exp.to_identifier("q"), columns=names))
            return select(items(node.columns), rows)
        return exp.select(exp.alias_(exp.Literal.number(1), "one", copy=False))

    def delta(self, b: Builder, node: Any) -> exp.Query:  # noqa: ARG002
        raise AssertionError("literal rows have no sources")
