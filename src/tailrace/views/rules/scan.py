"""A table: its rows, and its changes as the store gives them."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.plan import Scan
from tailrace.views.program import WEIGHT, Builder, State, Within
from tailrace.views.rules.rule import Rule, items, only_with, sub, union_all


def _renamed(scan: Scan) -> list[exp.Expr]:
    return [
        exp.alias_(exp.column(exp.to_identifier(own, quoted=True)), name, copy=False)
        for own, name in zip(scan.fields, scan.columns, strict=True)
    ]


class ScanRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Scan, state: State, within: Within | None) -> exp.Query:
        if node.source not in b.changed:
            state = State.NEW
        if within is None:
            return exp.select(*_renamed(node)).from_(b.leaf(node.source, state), copy=False)
        column, key = within.pairs[0]
        if state is State.NEW or node.source not in b.source_keys:
            name = b.fetch(node, state, column, within.keys, key)
            rows: exp.Query = exp.select(*_renamed(node)).from_(name, copy=False)
        else:
            rows = self._before(b, node, column, within, key)
        return rows if len(within.pairs) == 1 else only_with(rows, within, node.columns)

    def _before(self, b: Builder, node: Scan, column: str, within: Within, key: str) -> exp.Query:
        """The old rows from the new ones and the change, so that the table is read once."""
        fetched = b.fetch(node, State.NEW, column, within.keys, key)
        own = b.source_keys[node.source]
        inserted = (
            exp.select(*(exp.column(exp.to_identifier(c, quoted=True)) for c in own))
            .from_(b.leaf(node.source, "delta"), copy=False)
            .where(exp.GT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False)
        )
        kept = exp.select(*_items_of(node, "n")).from_(
            exp.alias_(exp.to_table(fetched), "n", table=True, copy=False)
        )
        same = exp.and_(
            *(
                exp.EQ(
                    this=exp.column(exp.to_identifier(c, quoted=True), table="n"),
                    expression=exp.column(exp.to_identifier(c, quoted=True), table="d"),
                )
                for c in own
            )
        )
        kept.append("joins", exp.Join(this=sub(inserted, "d"), side="LEFT", kind="ANTI", on=same))
        gone = (
            exp.select(*_renamed(node))
            .from_(b.leaf(node.source, "delta"), copy=False)
            .where(exp.LT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False)
        )
        limit = Within(keys=within.keys, pairs=((column, key),))
        return union_all([kept, only_with(gone, limit, node.columns)])

    def delta(self, b: Builder, node: Scan) -> exp.Query:
        return exp.select(*_renamed(node), *items([WEIGHT])).from_(
            b.leaf(node.source, "delta"), copy=False
        )


def _items_of(scan: Scan, relation: str) -> list[exp.Expr]:
    return [
        exp.alias_(
            exp.column(exp.to_identifier(own, quoted=True), table=relation), name, copy=False
        )
        for own, name in zip(scan.fields, scan.columns, strict=True)
    ]
