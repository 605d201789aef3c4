"""The names that stand where Spark's grammar has a table, found without a parser."""

from __future__ import annotations

import pytest

from tailrace.spark_sql.lexer import lexemes_of
from tailrace.spark_sql.relations import relations


def named(text: str) -> str:
    return " ".join(lexeme.text for lexeme in relations(lexemes_of(text)))


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT a, b FROM t", "t"),
        ("FROM t SELECT a, b", "t"),
        ("SELECT * FROM s.t, u JOIN v ON t.a = v.a, w", "s u v w"),
        ("SELECT * FROM t AS x, `odd name` y", "t `odd name`"),
        ("SELECT (SELECT max(a) FROM u) FROM t WHERE b IN (SELECT c FROM v)", "u t v"),
        ("SELECT a FROM t UNION ALL SELECT b FROM u", "t u"),
        ("SELECT * FROM (SELECT * FROM t) x, u", "t u"),
        ("SELECT * FROM ((t JOIN u)), v", "t u v"),
        ("TABLE t", "t"),
        ("SELECT 1", ""),
    ],
)
def test_tables(text: str, tables: str) -> None:
    assert named(text) == tables


@pytest.mark.parametrize(
    "text",
    [
        "SELECT extract(YEAR FROM d), trim(BOTH x FROM s), substring(a FROM 2 FOR 3)",
        "SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d",
        "SELECT * FROM range(10)",
        "SELECT * FROM VALUES (1, 'a'), (null, DATE '2020-01-01')",
    ],
)
def test_what_looks_like_a_table_and_is_none(text: str) -> None:
    assert named(text) == ""


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT * FROM t GROUP BY a, b", "t"),
        ("SELECT * FROM t ORDER BY a, b", "t"),
        ("SELECT * FROM t WINDOW w AS (PARTITION BY a, b), z AS (ORDER BY c)", "t"),
        ("SELECT * FROM t LATERAL VIEW explode(m) x AS k, v", "t"),
    ],
)
def test_commas_of_other_lists_are_not_between_tables(text: str, tables: str) -> None:
    assert named(text) == tables


def test_a_with_names_queries_and_the_tables_inside_them_are_found() -> None:
    assert named("WITH x AS (SELECT * FROM t), y AS (FROM x) SELECT * FROM y, z") == "t x y z"


def test_in_doubt_it_finds_too_many() -> None:
    """FROM t SELECT, u: there SELECT is an alias."""
    assert named("SELECT * FROM t SELECT, u") == "t u"
