"""The 99 queries of TPC-DS in Spark's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

NAMES = tuple(f"q{number:02}" for number in range(1, 100))


def queries(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The queries `q01` to `q99` with the parameters that DuckDB's extension has for them."""
    rows = connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
    found = {f"q{number:02}": to_spark(text) for number, text in rows}
    assert tuple(sorted(found)) == NAMES
    return found


def to_spark(text: str) -> str:
    """A query of DuckDB in Spark's SQL."""
    tree = sqlglot.parse_one(text, read="duckdb")
    return tree.sql(dialect="spark", pretty=True)


def limit(text: str) -> int | None:
    """How many rows a query shows at most, if it says so."""
    found = sqlglot.parse_one(text, read="spark").args.get("limit")
    return None if found is None else int(found.expression.this)


def with_ties(text: str, columns: Sequence[str]) -> tuple[str, int]:
    """A query without its limit, and with what it is ordered by as further columns; so many.

    `columns` are those of its result.
    """
    tree = sqlglot.parse_one(text, read="spark")
    assert isinstance(tree, exp.Select), text
    shown: list[exp.Expression] = [exp.column(name) for name in columns]
    if not tree.is_star:
        shown = [one.unalias() for one in tree.selects]
    given = dict(zip((name.lower() for name in columns), shown, strict=True))

    def meant(node: exp.Expression) -> exp.Expression:
        """A column's expression, where its name is one of the result."""
        if isinstance(node, exp.Column) and not node.table:
            return given.get(node.name.lower(), node).copy()
        return node

    order = tree.args.get("order")
    terms = [term.this for term in order.expressions] if order else []
    for number, term in enumerate(terms):
        ordinal = isinstance(term, exp.Literal)
        found = shown[int(term.this) - 1] if ordinal else term.copy().transform(meant)
        tree.select(exp.alias_(found.copy(), f"tie_{number}"), copy=False)
    tree.set("limit", None)
    return tree.sql(dialect="spark"), len(terms)
