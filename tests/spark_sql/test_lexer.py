"""Texts are cut as Spark cuts them, or refused."""

from __future__ import annotations

import pytest
from sqlglot.errors import TokenError

from tailrace.spark_sql.lexer import (
    Lexeme,
    LexemeKind,
    RefusedError,
    lexemes_of,
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
