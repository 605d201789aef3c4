"""What a rule is, and the queries that most rules are built from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from tailrace.views.incremental.program import WEIGHT, Builder, End, Within
from tailrace.views.query.plan import Node, SetOperation, Union
from tailrace.views.query.trees import (
    all_of,
    column_of,
    copied,
    from_query,
    items,
    named,
    select,
    sub,
    table,
    union_all,
)


class Rule:
    """How one operator's rows are computed, and how they change; see `Builder`."""

    def rows(self, b: Builder, node: Any, end: End, within: Within | None) -> exp.Query:
        raise NotImplementedError

    def delta(self, b: Builder, node: Any) -> exp.Query:
        raise NotImplementedError

    def touched(self, b: Builder, node: Any, columns: Sequence[str]) -> list[exp.Query]:
        """From the delta itself, unless a rule knows something cheaper."""
        delta = b.delta(node, columns)
        return [] if delta is None else [from_query(delta, columns)]

    def tells(self, b: Builder, node: Any, columns: Sequence[str]) -> bool:  # noqa: ARG002
        """Whether `touched` needs nothing but the changes of sources."""
        return self.tells_all(b, node)

    def tells_all(self, b: Builder, node: Any) -> bool:  # noqa: ARG002
        """Whether `delta` needs nothing but the changes of sources."""
        return False


def with_weight(query: exp.Query, columns: Sequence[str], weight: int) -> exp.Select:
    """A query's rows, each with this weight."""
    number: exp.Expr = exp.Literal.number(abs(weight))
    marked = exp.alias_(number if weight > 0 else exp.Neg(this=number), WEIGHT, copy=False)
    return select([*items(columns), marked], sub(query))


def difference(b: Builder, node: Node, within: Within | None) -> exp.Query:
    """A node's rows at the end, less those at the start: right for every operator."""
    terms = []
    for end, weight in ((End.NEW, 1), (End.OLD, -1)):
        rows = b.rows(node, end, within)
        if within is not None and len(within.pairs) > 1:
            rows = only_with(rows, within, node.columns)
        terms.append(with_weight(rows, node.columns, weight))
    return union_all(terms)


def affected(
    b: Builder, columns: Sequence[str], parts: list[exp.Query], among: exp.Query | None = None
) -> Within:
    """The limit to the values of columns that queries give; for `among` see `Keys`."""
    keys = b.keys(parts, len(columns), among)
    return Within(keys=keys, pairs=tuple((c, f"k{n}") for n, c in enumerate(columns)))


def only_with(query: exp.Query, within: Within | None, columns: Sequence[str]) -> exp.Query:
    """The rows of a query that have the keys; NULL is a key like others."""
    if within is None:
        return query
    same = [
        exp.NullSafeEQ(this=column_of(own, "q"), expression=column_of(key, "k"))
        for own, key in within.pairs
    ]
    keys = select(items([key for _, key in within.pairs]), table(within.keys))
    keys = keys.distinct(copy=False)
    join = exp.Join(this=sub(keys, "k"), side="LEFT", kind="SEMI", on=all_of(same))
    joined = select(items(columns, "q"), sub(query))
    joined.append("joins", join)
    return joined


def with_rest(
    query: exp.Query, within: Within | None, below: Within | None, columns: Sequence[str]
) -> exp.Query:
    """The rows of a query that have the keys; its inputs were limited only by those `below`."""
    if within is None or (below is not None and len(below.pairs) == len(within.pairs)):
        return query
    return only_with(query, within, columns)


def kept_columns(node: Union | SetOperation, part: Node) -> dict[str, str]:
    """The columns that hold an input's values unchanged, with their names there."""
    pairs = zip(node.columns, part.columns, strict=True)
    return {name: own for name, own in pairs if name not in node.converted}


def column_items(pairs: Sequence[tuple[str, exp.Expr]]) -> list[exp.Expr]:
    """Named expressions as a SELECT list."""
    return [named(copied(value), name) for name, value in pairs]
