"""Operators that treat each row by itself: applied to rows and to changes alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.base import (
    Rule,
    column_items,
    kept_columns,
    only_with,
    with_rest,
)
from tailrace.views.query.plan import Explode, Filter, Node, OneRow, Project, Scan, Union, Values
from tailrace.views.query.trees import (
    all_of,
    column_of,
    conjuncts,
    from_query,
    items,
    named,
    select,
    sub,
    table,
    union_all,
)


class ScanRule(Rule):
    """A table: its rows, and its changes as the store gives them."""

    def rows(self, b: Builder, node: Scan, end: End, within: Within | None) -> exp.Query:
        if node.source not in b.changed:
            end = End.NEW
        if within is None:
            return select(_items_of(node), b.leaf(node.source, end))
        own, key = _looked_up(b, node, within)
        if end is End.NEW or node.source not in b.source_keys:
            name = b.fetch(node, end, own, within.keys, key)
            rows: exp.Query = select(_items_of(node), table(name))
        else:
            rows = self._before(b, node, own, within, key)
        return rows if len(within.pairs) == 1 else only_with(rows, within, node.columns)

    def _before(self, b: Builder, node: Scan, by: str, within: Within, key: str) -> exp.Query:
        """The old rows, from the new ones and the change, so that the table is read once."""
        fetched = b.fetch(node, End.NEW, by, within.keys, key)
        own = b.source_keys[node.source]
        shown = [column_of(c, quoted=True) for c in own]
        inserted = select(shown, b.leaf(node.source, None)).where(
            exp.GT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False
        )
        kept = select(_items_of(node, "n"), table(fetched, "n"))
        same = all_of(
            [
                exp.EQ(
                    this=column_of(c, "n", quoted=True), expression=column_of(c, "d", quoted=True)
                )
                for c in own
            ]
        )
        kept.append("joins", exp.Join(this=sub(inserted, "d"), side="LEFT", kind="ANTI", on=same))
        gone = select(_items_of(node), b.leaf(node.source, None)).where(
            exp.LT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False
        )
        limit = Within(keys=within.keys, pairs=((by, key),))
        return union_all([kept, only_with(gone, limit, node.columns)])

    def delta(self, b: Builder, node: Scan) -> exp.Query:
        return select([*_items_of(node), *items([WEIGHT])], b.leaf(node.source, None))

    def tells_all(self, b: Builder, node: Scan) -> bool:  # noqa: ARG002
        return True


def _looked_up(b: Builder, scan: Scan, within: Within) -> tuple[str, str]:
    """The pair by which rows are found: by the table's key if possible, as its rows are sorted."""
    fields = dict(zip(scan.columns, scan.fields, strict=True))
    first = b.source_keys.get(scan.source, ())[:1]
    return min(within.pairs, key=lambda pair: fields[pair[0]] not in first)


def _items_of(scan: Scan, relation: str | None = None) -> list[exp.Expr]:
    return [
        named(column_of(own, relation, quoted=True), name)
        for own, name in zip(scan.fields, scan.columns, strict=True)
    ]


class ConstantRule(Rule):
    """Literal rows: they never change."""

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


class RowRule(Rule):
    """For operators over one input."""

    def over(self, node: Any, query: exp.Query, more: Sequence[str]) -> exp.Query:
        """The operator over rows of its input, which also have some more columns."""
        raise NotImplementedError

    def passed(self, node: Any) -> Mapping[str, str]:
        """The columns that are only passed on, with their names below."""
        return {name: name for name in node.input.columns}

    def rows(self, b: Builder, node: Any, end: End, within: Within | None) -> exp.Query:
        below = None if within is None else within.on(self.passed(node))
        query = self.over(node, b.rows(node.input, end, below), ())
        return with_rest(query, within, below, node.columns)

    def delta(self, b: Builder, node: Any) -> exp.Query:
        below = b.delta(node.input)
        assert below is not None
        return self.over(node, below, [WEIGHT])

    def touched(self, b: Builder, node: Any, columns: Sequence[str]) -> list[exp.Query]:
        passed = self.passed(node)
        if node.is_simple or not all(column in passed for column in columns):
            return super().touched(b, node, columns)
        return b.touched(node.input, [passed[column] for column in columns])

    def tells(self, b: Builder, node: Any, columns: Sequence[str]) -> bool:
        passed = self.passed(node)
        if not all(column in passed for column in columns):
            return self.tells_all(b, node)
        return b.tells(node.input, [passed[column] for column in columns])

    def tells_all(self, b: Builder, node: Any) -> bool:
        return b.tells_all(node.input)


class FilterRule(RowRule):
    """A condition."""

    def over(self, node: Filter, query: exp.Query, more: Sequence[str]) -> exp.Query:
        condition = all_of(conjuncts(node.condition))
        return from_query(query, [*node.columns, *more]).where(condition, copy=False)


class ProjectRule(RowRule):
    """A row for each row."""

    def over(self, node: Project, query: exp.Query, more: Sequence[str]) -> exp.Query:
        shown = [*column_items(node.items), *items(more)]
        if isinstance(node.input, OneRow):
            return exp.Select(expressions=shown)
        return select(shown, sub(query))

    def passed(self, node: Project) -> Mapping[str, str]:
        return {name: value.name for name, value in node.items if isinstance(value, exp.Column)}


class ExplodeRule(RowRule):
    """A generator of rows."""

    def over(self, node: Explode, query: exp.Query, more: Sequence[str]) -> exp.Query:
        names = [exp.to_identifier(name) for name in node.added]
        lateral = exp.Lateral(
            this=node.call.copy(),
            view=True,
            outer=node.outer or None,
            alias=exp.TableAlias(this=exp.to_identifier("x"), columns=names),
        )
        exploded = from_query(query, [*node.columns, *more])
        exploded.append("laterals", lateral)
        return exploded


class UnionRule(Rule):
    """The rows of several inputs."""

    def rows(self, b: Builder, node: Union, end: End, within: Within | None) -> exp.Query:
        parts = []
        for part in node.parts:
            below = None if within is None else within.on(kept_columns(node, part))
            parts.append(self._named(node, part, b.rows(part, end, below), ()))
        union = union_all(parts)
        is_open = within is not None and any(own in node.converted for own, _ in within.pairs)
        return only_with(union, within, node.columns) if is_open else union

    def delta(self, b: Builder, node: Union) -> exp.Query:
        parts = []
        for part in node.parts:
            delta = b.delta(part)
            if delta is not None:
                parts.append(self._named(node, part, delta, [WEIGHT]))
        return union_all(parts)

    def _named(self, node: Union, part: Node, query: exp.Query, more: Sequence[str]) -> exp.Select:
        pairs = zip(part.columns, node.columns, strict=True)
        shown = [named(column_of(own), name) for own, name in pairs]
        return select([*shown, *items(more)], sub(query))

    def touched(self, b: Builder, node: Union, columns: Sequence[str]) -> list[exp.Query]:
        places = [node.columns.index(column) for column in columns]
        return [
            query
            for part in node.parts
            for query in b.touched(part, [part.columns[n] for n in places])
        ]

    def tells(self, b: Builder, node: Union, columns: Sequence[str]) -> bool:
        places = [node.columns.index(column) for column in columns]
        return all(b.tells(part, [part.columns[n] for n in places]) for part in node.parts)

    def tells_all(self, b: Builder, node: Union) -> bool:
        return all(b.tells_all(part) for part in node.parts)
