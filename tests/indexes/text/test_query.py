"""What users search for is parsed to a tree; what cannot be read says why."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.indexes.text.query import Group, Occurs, Words, parse

SHOULD, MUST, MUST_NOT = Occurs.SHOULD, Occurs.MUST, Occurs.MUST_NOT


def group(*clauses: tuple[Occurs, Group | Words]) -> Group:
    return Group(clauses)


def word(text: str, column: str | None = None) -> Words:
    return Words(text=text, column=column)


A, B, C = word("a"), word("b"), word("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", group((SHOULD, A))),
        ("a b", group((SHOULD, A), (SHOULD, B))),
        ("a OR b", group((SHOULD, A), (SHOULD, B))),
        ("a || b", group((SHOULD, A), (SHOULD, B))),
        ("+a -b c", group((MUST, A), (MUST_NOT, B), (SHOULD, C))),
        ("a NOT b", group((SHOULD, A), (MUST_NOT, B))),
        ("a AND b c", group((SHOULD, group((MUST, A), (MUST, B))), (SHOULD, C))),
        ("a && NOT b", group((SHOULD, group((MUST, A), (MUST_NOT, B))))),
        ("+(a b) c", group((MUST, group((SHOULD, A), (SHOULD, B))), (SHOULD, C))),
        ("and or not", group((SHOULD, word("and")), (SHOULD, word("or")), (SHOULD, word("not")))),
    ],
)
def test_clauses(text: str, tree: Group) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title:late", Words(text="late", column="title")),
        ('"late delivery"', Words(text="late delivery", is_phrase=True)),
        ('title:"late box"~3', Words(text="late box", column="title", is_phrase=True, slop=3)),
        ("deliv*", Words(text="deliv", is_prefix=True)),
        ("*", Words(text="*")),  # alone, it is a word
        ("delivry~", Words(text="delivry", distance=1)),
        ("title:delivry~2", Words(text="delivry", column="title", distance=2)),
        ("title:", Words(text="title:")),
        ("title: late", None),
        ("a-b", Words(text="a-b")),  # a sign is one only before a word
    ],
)
def test_words(text: str, words: Words | None) -> None:
    clauses = parse(text).clauses
    if words is None:
        assert len(clauses) == 2
    else:
        assert clauses == ((SHOULD, words),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a AND OR b", "a word is expected instead of 'OR'"),
        ("a OR", "nothing follows the OR"),
        ("(a OR) b", "nothing follows the OR"),
        ("NOT a AND NOT b", "it only says what must not be there"),
        ("-a -b", "only says what must not be there"),
        ("(late", "a parenthesis is not closed"),
        ("late (", "a parenthesis is not closed"),
        ("late)", "that was not opened"),
        ("late AND", "ends where a word is expected"),
        ("late AND (NOT early)", "a group only says what must not be there"),
        ("late ()", "a group only says"),
        ("", "no word to search for"),
        ('"late delivery"~99999999999', "at most 1000"),
        ("x" * 100_001, "at most 100,000 letters"),
        ("late \ud800", "not Unicode"),
        ("+ a", None),  # a plus that stands alone is a word
        ('a "b', "a quote is not closed"),
        ('"a b"~1001', "at most 1000"),
        ("a~3", "1 or 2 letters, not in 3"),
        ("a~0", "1 or 2 letters, not in 0"),
        ("x" * 201 + "*", "at most 200 letters"),
        ("(" * 60 + "a" + ")" * 60, "too many parentheses"),
        ("a " * 1025, "at most 1024 words"),
        (None, "is searched for text"),
    ],
)
def test_what_is_wrong_is_named(text: object, reason: str | None) -> None:
    if reason is None:
        parse(text)
        return
    with pytest.raises(tailrace.InvalidError, match=reason):
        parse(text)
