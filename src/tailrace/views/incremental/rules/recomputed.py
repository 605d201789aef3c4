"""Operators whose change is found by computing what the change touches before and after it.

If a whole query ends in sums and counts, less will do: see `group_states`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from tailrace.views.incremental.program import Builder, End, Within
from tailrace.views.incremental.rules.base import (
    Rule,
    affected,
    column_items,
    difference,
    kept_columns,
    only_with,
    with_rest,
)
from tailrace.views.query.plan import Aggregate, Limit, SetKind, SetOperation, Window
from tailrace.views.query.trees import from_query, items, select, sub


class GroupRule(Rule):
    """For operators whose rows follow from all input rows that have the same values in columns."""

    def by(self, node: Any) -> tuple[str, ...]:
        """The columns."""
        raise NotImplementedError

    def over(self, node: Any, query: exp.Query) -> exp.Select:
        """The operator over rows of its input."""
        raise NotImplementedError

    def rows(self, b: Builder, node: Any, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on({name: name for name in self.by(node)})
        rows = self.over(node, b.rows(node.input, end, below))
        return with_rest(rows, within, below, node.columns)

    def limit(self, b: Builder, node: Any) -> Sequence[str]:  # noqa: ARG002
        """The columns whose values say what a change touches."""
        return self.by(node)

    def delta(self, b: Builder, node: Any) -> exp.Query:
        by = self.limit(b, node)
        return difference(b, node, affected(b, by, b.touched(node.input, by)) if by else None)

    def touched(self, b: Builder, node: Any, columns: Sequence[str]) -> list[exp.Query]:
        if set(columns) <= set(self.by(node)):
            return b.touched(node.input, columns)
        return super().touched(b, node, columns)

    def tells(self, b: Builder, node: Any, columns: Sequence[str]) -> bool:
        return set(columns) <= set(self.by(node)) and b.tells(node.input, columns)


class AggregateRule(GroupRule):
    """Groups."""

    def by(self, node: Aggregate) -> tuple[str, ...]:
        return node.keys

    def over(self, node: Aggregate, query: exp.Query) -> exp.Select:
        calls = [exp.alias_(call.call.copy(), call.name, copy=False) for call in node.calls]
        groups = select([*items(node.keys), *calls], sub(query))
        return groups.group_by(*items(node.keys), copy=False) if node.keys else groups

    def limit(self, b: Builder, node: Aggregate) -> Sequence[str]:
        # The keys that the change alone tells: others would have to be looked for first.
        direct = [key for key in node.keys if b.tells(node.input, [key])]
        if direct and b.tells(node.input, direct):
            return direct
        return direct[:1] or node.keys


class WindowRule(GroupRule):
    """Window functions, by partition."""

    def by(self, node: Window) -> tuple[str, ...]:
        return node.partition

    def over(self, node: Window, query: exp.Query) -> exp.Select:
        return select([*items(node.input.columns), *column_items(node.items)], sub(query))


class SetOperationRule(Rule):
    """INTERSECT and EXCEPT."""

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


class LimitRule(Rule):
    """The first rows in an order, inside a query: all of it is computed."""

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
