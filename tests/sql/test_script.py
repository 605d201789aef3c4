"""Where a script is cut into statements."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.sql.script import is_complete, statements


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
