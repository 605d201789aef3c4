"""The parser: where it cuts a script, what it passes over, and what it says was valid there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tailrace
from tailrace.sql.parser import Parser, is_complete, statements


def parser(text: str) -> Parser:
    (statement,) = statements(text)
    return Parser(statement)


def test_words_are_accepted_all_or_none() -> None:
    at = parser("if not there")
    assert not at.accept("IF", "EXISTS")
    assert at.accept("IF", "NOT")
    assert at.word() == "THERE"
    assert not at.at_end


def test_a_quoted_word_is_a_name_and_no_keyword() -> None:
    at = parser("`SELECT` 'SELECT'")
    assert at.word() == at.word(1) == ""
    assert at.name("a column") == "SELECT"
    assert at.string("a text") == "SELECT"
    assert at.at_end


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "main.orders"),
        ("Sales.Orders", "Sales.Orders"),
        ("`a.b`.`c``d`", "`a.b`.`c``d`"),
        ("sales . orders", "sales.orders"),
        ("table", "main.table"),
    ],
)
def test_an_object_has_a_schema(text: str, name: str) -> None:
    at = parser(text)
    assert at.object_name("the table") == name
    at.end()


@pytest.mark.parametrize(
    ("text", "piece", "rest"),
    [
        ("a + 1, b", "a + 1", ","),
        ("f(a, b), c", "f(a, b)", ","),
        ("CASE WHEN a THEN b END WHEN c", "CASE WHEN a THEN b END", "WHEN"),
        ("t.when = 1 WHEN c", "t.when = 1", "WHEN"),
        ("a = ':when', b", "a = ':when'", ","),
        ("a) b", "a", ")"),
        (", b", "", ","),
    ],
)
def test_a_piece_ends_at_a_stop_outside_of_parentheses(text: str, piece: str, rest: str) -> None:
    at = parser(text)
    assert at.cut(at.upto(",", "WHEN")) == piece
    assert at.word() == rest


def test_columns_have_their_places() -> None:
    at = parser("( id , `the name` ) USING")
    names = at.columns()
    assert [name for name, _ in names] == ["id", "the name"]
    assert [at.cut(span) for _, span in names] == ["id", "`the name`"]
    assert at.word() == "USING"


def test_what_is_in_parentheses_and_what_is_left() -> None:
    at = parser("(a, (b)) SELECT 1 -- one")
    assert at.cut(at.inside()) == "a, (b)"
    assert at.cut(at.rest()) == "SELECT 1"
    assert at.at_end


def test_an_error_lists_what_was_asked_for_at_its_place() -> None:
    at = parser("DROP TABEL t")
    at.expect("DROP")
    assert not at.accept("SCHEMA")
    with pytest.raises(tailrace.InvalidError) as caught:
        at.expect("TABLE")
    assert str(caught.value).splitlines() == [
        "line 1, column 6: TABEL is not expected here; did you mean TABLE?",
        "  1 | DROP TABEL t",
        "    |      ^^^^^",
        "valid here: SCHEMA, TABLE",
    ]


def test_an_error_at_the_end_points_behind_it() -> None:
    at = parser("DROP\n  TABLE")
    at.expect("DROP", "TABLE")
    with pytest.raises(tailrace.InvalidError) as caught:
        at.object_name("the table")
    assert str(caught.value).splitlines() == [
        "line 2, column 8: the name of the table is missing",
        "  2 |   TABLE",
        "    |        ^",
    ]


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("a.b.c", lambda at: at.object_name("the table"), "at most two parts"),
        ("'a'", lambda at: at.name("a column"), "without quotes, or with backticks"),
        ("1", lambda at: at.name("a column"), "the name of a column is expected"),
        ("a", lambda at: at.string("the value"), "the value is expected, as a text in quotes"),
        ("-1", lambda at: at.integer("how many"), "how many is expected, as a whole number"),
        ("a b", lambda at: (at.name("x"), at.end()), "valid here: the end"),
        ("RED", lambda at: at.one_of(("GREEN", "BLUE")), "valid here: GREEN, BLUE"),
    ],
)
def test_what_does_not_fit_is_refused(
    text: str, read: Callable[[Parser], Any], message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        read(parser(text))


# --- a script is cut into statements --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ;\n; ", []),
        ("-- nothing\n/* at all */", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' , `;` -- ;\n; SELECT /* ; */ 2", ["SELECT ';' , `;`", "SELECT /* ; */ 2"]),
        (r"SELECT 'it\'s; one'; SELECT 2", [r"SELECT 'it\'s; one'", "SELECT 2"]),
    ],
)
def test_a_script_is_cut_at_semicolons(text: str, expected: list[str]) -> None:
    assert [statement.sql for statement in statements(text)] == expected


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
    ],
)
def test_a_shell_knows_when_a_text_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 'a", "line 1, column 8: this text has no end"),
        ('SELECT 1,\n  "a', "line 2, column 3: this text has no end"),
        ("SELECT `a", "line 1, column 8: this name has no end"),
        ("SELECT 'a' -- it's\n, `b", "line 2, column 3: this name has no end"),
        (r"SELECT 'a\'", "line 1, column 8: this text has no end"),
    ],
)
def test_what_has_no_end_is_shown_where_it_begins(text: str, message: str) -> None:
    with pytest.raises(tailrace.InvalidError) as caught:
        list(statements(text))
    assert str(caught.value).startswith(message)
