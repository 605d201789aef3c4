"""A table: its rows, and its changes as the store gives them."""

from __future__ import annotations

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.incremental.rules.rule import Rule, only_with
from tailrace.views.query.plan import Scan
from tailrace.views.query.scope import all_of
from tailrace.views.query.trees import column, items, named, select, sub, table, union_all


def _renamed(scan: Scan) -> list[exp.Expr]:
    return _items_of(scan, None)


class ScanRule(Rule):
    """See the module."""

    def rows(self, b: Builder, node: Scan, end: End, within: Within | None) -> exp.Query:
        if node.source not in b.changed:
            end = End.NEW
        if within is None:
            return select(_renamed(node), b.leaf(node.source, end))
        own, key = within.pairs[0]
        if end is End.NEW or node.source not in b.source_keys:
            name = b.fetch(node, end, own, within.keys, key)
            rows: exp.Query = select(_renamed(node), table(name))
        else:
            rows = self._before(b, node, own, within, key)
        return rows if len(within.pairs) == 1 else only_with(rows, within, node.columns)

    def _before(self, b: Builder, node: Scan, by: str, within: Within, key: str) -> exp.Query:
        """The old rows, from the new ones and the change, so that the table is read once."""
        fetched = b.fetch(node, End.NEW, by, within.keys, key)
        own = b.source_keys[node.source]
        shown = [column(c, quoted=True) for c in own]
        inserted = select(shown, b.leaf(node.source, None)).where(
            exp.GT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False
        )
        kept = select(_items_of(node, "n"), table(fetched, "n"))
        same = all_of(
            [
                exp.EQ(this=column(c, "n", quoted=True), expression=column(c, "d", quoted=True))
                for c in own
            ]
        )
        kept.append("joins", exp.Join(this=sub(inserted, "d"), side="LEFT", kind="ANTI", on=same))
        gone = select(_renamed(node), b.leaf(node.source, None)).where(
            exp.LT(this=exp.column(WEIGHT), expression=exp.Literal.number(0)), copy=False
        )
        limit = Within(keys=within.keys, pairs=((by, key),))
        return union_all([kept, only_with(gone, limit, node.columns)])

    def delta(self, b: Builder, node: Scan) -> exp.Query:
        return select([*_renamed(node), *items([WEIGHT])], b.leaf(node.source, None))

    def tells_all(self, b: Builder, node: Scan) -> bool:  # noqa: ARG002
        return True


def _items_of(scan: Scan, relation: str | None) -> list[exp.Expr]:
    return [
        named(column(own, relation, quoted=True), name)
        for own, name in zip(scan.fields, scan.columns, strict=True)
    ]
