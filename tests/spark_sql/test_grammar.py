"""Texts are cut as Spark cuts them, or refused; names that may be tables are found in them."""

from __future__ import annotations

import pytest
from sqlglot.errors import TokenError

from tailrace.spark_sql.grammar import (
    Lexeme,
    LexemeKind,
    RefusedError,
    lexemes_of,
    relations,
    without_comments,
)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a1 _b 10", "WORD WORD WORD"),
        ("`a b` `c``d`", "NAME NAME"),
        ("'it\\'s' \"x\" r'\\' x'1F'", "STRING STRING STRING STRING"),
        ("1.5 1e-3 2.BD", "NUMBER NUMBER NUMBER"),
        ("<=> , (", "MARK MARK MARK"),
        ("SELECT /*+ BROADCAST(t) */", "WORD HINT"),
    ],
)
def test_kinds(text: str, kinds: str) -> None:
    assert [lexeme.kind.name for lexeme in lexemes_of(text)] == kinds.split()


def test_places_and_meanings() -> None:
    select, name, number = lexemes_of("select `a``b` 12")
    assert (select.keyword, select.is_name, select.start, select.end) == ("SELECT", True, 0, 6)
    assert (name.keyword, name.is_name, name.name) == ("", True, "a`b")
    assert not number.is_name


@pytest.mark.parametrize("text", ["a ; b", "{x}", "\u017felect 1", "s3://bucket", "a @ b"])
def test_what_spark_may_cut_differently_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="is not expected here"):
        lexemes_of(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a -- b\nc", "a     \nc"),
        ("a /* b\nc */ d", "a     \n     d"),
        ("'-- a' /* b */", "'-- a'        "),
        ("SELECT /*+ MERGE(t) */ a", "SELECT /*+ MERGE(t) */ a"),
    ],
)
def test_comments_become_spaces_and_all_else_stays(text: str, plain: str) -> None:
    assert without_comments(text) == plain


@pytest.mark.parametrize("text", ["'a", "`a", "/* a"])
def test_what_never_ends_is_an_error(text: str) -> None:
    with pytest.raises(TokenError):
        lexemes_of(text)


def test_a_refusal_says_where() -> None:
    first, second = (
        Lexeme(kind=LexemeKind.WORD, text=text, start=start, end=start + 1)
        for text, start in (("a", 3), ("b", 7))
    )
    error = first.refused("not this", upto=second, hint="write c")
    assert (str(error), error.start, error.end) == ("not this; write c", 3, 8)


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
