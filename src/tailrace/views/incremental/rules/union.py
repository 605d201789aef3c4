"""The rows of several inputs; its change is the changes of these."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, kept_columns, only_with, weighted
from tailrace.views.query.plan import Node, Union
from tailrace.views.query.trees import column, named, select, sub, union_all


class UnionRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Union, end: End, within: Within | None) -> exp.Query:
        parts = []
        for part in node.parts:
            names = kept_columns(node, part)
            below = None if within is None else within.on(names)
            parts.append(self._named(node, part, b.rows(part, end, below), weight=False))
        union = union_all(parts)
        is_open = within is not None and any(own in node.converted for own, _ in within.pairs)
        return only_with(union, within, node.columns) if is_open else union

    def delta(self, b: Builder, node: Union) -> exp.Query:
        parts = [
            self._named(node, part, delta, weight=True)
            for part in node.parts
            if (delta := b.delta(part)) is not None
        ]
        return union_all(parts)

    def _named(self, node: Union, part: Node, query: exp.Query, *, weight: bool) -> exp.Select:
        shown = [
            named(column(own), name)
            for own, name in zip(
                weighted(part.columns, weight=weight),
                weighted(node.columns, weight=weight),
                strict=True,
            )
        ]
        return select(shown, sub(query))

    def touched(self, b: Builder, node: Union, columns: Sequence[str]) -> list[exp.Query]:
        queries: list[exp.Query] = []
        for part in node.parts:
            names = dict(zip(node.columns, part.columns, strict=True))
            queries += b.touched(part, [names[column] for column in columns])
        return queries

    def tells(self, b: Builder, node: Union, columns: Sequence[str]) -> bool:
        places = [node.columns.index(column) for column in columns]
        return all(b.tells(part, [part.columns[n] for n in places]) for part in node.parts)

    def tells_all(self, b: Builder, node: Union) -> bool:
        return all(b.tells_all(part) for part in node.parts)
