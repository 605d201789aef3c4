"""Outer, semi and anti joins: the join keys that a change touches, before and after it.

If only the left side changed, the join is applied to the change: what a left row becomes depends
only on itself and the right side.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.base import (
    Rule,
    affected,
    difference,
    only_with,
    with_rest,
    with_weight,
)
from tailrace.views.query.plan import JoinKind, KeyJoin
from tailrace.views.query.trees import all_of, column_of, from_query, items, select, sub, union_all

_JOINS = {
    JoinKind.LEFT: {"side": "LEFT"},
    JoinKind.FULL: {"side": "FULL"},
    JoinKind.SEMI: {"side": "LEFT", "kind": "SEMI"},
    JoinKind.ANTI: {"side": "LEFT", "kind": "ANTI"},
}


class KeyJoinRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: KeyJoin, end: End, within: Within | None) -> exp.Query:
        left_within = right_within = None
        # In a full join, rows of the right side have no left columns to be found by.
        if within is not None and node.kind is not JoinKind.FULL:
            left_within = within.on({c: c for c in node.left.columns})
            if left_within is not None:
                right_within = left_within.on(dict(node.pairs))
        left = b.rows(node.left, end, left_within)
        if left_within is not None and right_within is None and node.pairs and b.sideways:
            own, other = node.pairs[0]
            again = b.rows(node.left, end, left_within, [own])
            limit = affected(b, [own], [from_query(again, [own])])
            right_within = limit.on({own: other})
        right = b.rows(node.right, end, right_within)
        joined = self._joined(node, left, right, weight=False)
        return with_rest(joined, within, left_within, node.columns)

    def _joined(
        self, node: KeyJoin, left: exp.Query, right: exp.Query, *, weight: bool
    ) -> exp.Select:
        on = [exp.EQ(this=column_of(own), expression=column_of(other)) for own, other in node.pairs]
        condition = all_of([*on, *node.rest])
        columns = [*node.columns, WEIGHT] if weight else list(node.columns)
        joined = select(items(columns), sub(left, "l"))
        joined.append("joins", exp.Join(this=sub(right, "r"), on=condition, **_JOINS[node.kind]))
        return joined

    def delta(self, b: Builder, node: KeyJoin) -> exp.Query:
        if not b.is_changed(node.right) and node.kind is not JoinKind.FULL:
            return self._of_left_alone(b, node)
        if not node.pairs:
            return difference(b, node, None)
        left_keys = [own for own, _ in node.pairs]
        right_keys = [other for _, other in node.pairs]
        parts = [*b.touched(node.left, left_keys), *b.touched(node.right, right_keys)]
        limit = affected(b, left_keys, parts)
        one_sided = node.kind is not JoinKind.FULL and not b.is_changed(node.left)
        if one_sided and b.sideways and len(set(left_keys)) == len(left_keys):
            # Only rows of the left side can have become others.
            left = only_with(b.rows(node.left, End.NEW, limit), limit, node.left.columns)
            limit = affected(b, left_keys, [from_query(left, left_keys)])
        terms = []
        for end, weight in ((End.NEW, 1), (End.OLD, -1)):
            left = b.rows(node.left, end, limit)
            right = b.rows(node.right, end, limit.on(dict(node.pairs)))
            # Exactly these keys on both sides: in a full join, a row whose partner was left out
            # would look as if it had none.
            if node.kind is JoinKind.FULL or len(limit.pairs) > 1:
                left = only_with(left, limit, node.left.columns)
                right = only_with(right, limit.on(dict(node.pairs)), node.right.columns)
            joined = self._joined(node, left, right, weight=False)
            terms.append(with_weight(joined, node.columns, weight))
        return union_all(terms)

    def _of_left_alone(self, b: Builder, node: KeyJoin) -> exp.Query:
        left = b.delta(node.left)
        assert left is not None
        limit = None
        if node.pairs and b.sideways:
            own, other = node.pairs[0]
            again = b.delta(node.left, [own])
            assert again is not None
            limit = affected(b, [own], [from_query(again, [own])]).on({own: other})
        right = b.rows(node.right, End.NEW, limit)
        return self._joined(node, left, right, weight=True)

    def touched(self, b: Builder, node: KeyJoin, columns: Sequence[str]) -> list[exp.Query]:
        if node.kind is JoinKind.FULL or not set(columns) <= set(node.left.columns):
            return super().touched(b, node, columns)
        queries = b.touched(node.left, columns)
        if not b.is_changed(node.right):
            return queries
        others = dict(node.pairs)
        if all(column in others for column in columns):
            return [*queries, *b.touched(node.right, [others[column] for column in columns])]
        if not node.pairs:
            return super().touched(b, node, columns)
        right_keys = [other for _, other in node.pairs]
        own = [key for key, _ in node.pairs]
        limit = affected(b, own, b.touched(node.right, right_keys))
        for end in (End.NEW, End.OLD):
            rows = only_with(b.rows(node.left, end, limit), limit, node.left.columns)
            queries.append(from_query(rows, columns))
        return queries

    def tells(self, b: Builder, node: KeyJoin, columns: Sequence[str]) -> bool:
        if node.kind is JoinKind.FULL or not set(columns) <= set(node.left.columns):
            return False
        others = dict(node.pairs)
        if b.is_changed(node.right) and not (
            all(column in others for column in columns)
            and b.tells(node.right, [others[column] for column in columns])
        ):
            return False
        return b.tells(node.left, columns)
