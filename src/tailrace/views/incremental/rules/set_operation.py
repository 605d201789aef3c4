"""INTERSECT and EXCEPT: the rows that a change touches are counted before and after it."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, affected, difference, kept_columns
from tailrace.views.query.plan import SetKind, SetOperation
from tailrace.views.query.trees import select, sub


class SetOperationRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: SetOperation, end: End, within: Within | None) -> exp.Query:
        sides = []
        for side in (node.left, node.right):
            below = None if within is None else within.on(kept_columns(node, side))
            named = [
                exp.alias_(exp.column(own), name, copy=False)
                for own, name in zip(side.columns, node.columns, strict=True)
            ]
            sides.append(select(named, sub(b.rows(side, end, below))))
        combine = (
            exp.except_ if node.kind in (SetKind.EXCEPT, SetKind.EXCEPT_ALL) else exp.intersect
        )
        distinct = node.kind in (SetKind.EXCEPT, SetKind.INTERSECT)
        return combine(*sides, distinct=distinct, copy=False)

    def delta(self, b: Builder, node: SetOperation) -> exp.Query:
        parts = [
            query for side in (node.left, node.right) for query in b.touched(side, side.columns)
        ]
        return difference(b, node, affected(b, node.columns, parts))
