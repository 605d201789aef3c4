"""What users search for is parsed to a tree, or it says why not; and what tantivy finds for it."""

from __future__ import annotations

from typing import Any

import pytest
import tantivy

import tailrace
from tailrace.indexes.definition import Definition
from tailrace.indexes.text.files import field_of, make_schema, register
from tailrace.indexes.text.kind import TextOptions
from tailrace.indexes.text.query import Group, Occurs, QueryBuilder, Words, parse

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


NOTES = [
    "A late delivery, and broken",
    "Deliveries came early",
    "The box was late; the delivery of gifts was not",
    "late-night gift-wrapping",
    "C++ (and f(x)=1) are not words",
]
TITLES = ["angry", "late", None, "gift", "code"]


def found(query: str, **options: Any) -> list[int]:
    """The numbers of the texts that a query finds, sorted."""
    own = TextOptions(**{"weights": (1.0, 1.0), **options})
    definition = Definition(using="fulltext", columns=(3, 7), options=own)
    index = tantivy.Index(make_schema(definition))
    register(index, definition)
    writer = index.writer(heap_size=15_000_000, num_threads=1)
    for number, texts in enumerate(zip(NOTES, TITLES, strict=True)):
        document = tantivy.Document()
        for column, text in zip(definition.columns, texts, strict=True):
            if text is not None:
                document.add_text(field_of(column), text)
        document.add_unsigned("row", number)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    built = QueryBuilder(definition, ["note", "Title"]).build(query)
    searcher = index.searcher()
    places = [address for _, address in searcher.search(built, 10).hits]
    return sorted(searcher.fast_field_values("row", places))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("late", [0, 1, 2, 3]),
        ("note:late", [0, 2, 3]),
        ("TITLE:late", [1]),
        ("delivery", [0, 1, 2]),  # by its stem
        ("+late -box", [0, 1, 3]),
        ("late AND gift", [2, 3]),
        ("late AND NOT (gift OR early)", [0]),
        ('"late delivery"', [0]),
        ('"box late"~1', [2]),
        ("late-night", [3]),  # two words in a row
        ("deliv*", [0, 1, 2]),
        ("late deliv*", [0, 1, 2, 3]),
        ("delivry~", [0, 1, 2]),
        ("gft~1", [2, 3]),
        ("nothing", []),
        ("+late +nothing", []),
        ("c++", [4]),
        ("f(x)", [4]),
    ],
)
def test_stems(query: str, rows: list[int]) -> None:
    assert found(query) == rows


@pytest.mark.parametrize(
    ("query", "rows"), [("delivery", [0, 2]), ("deliver", []), ("DELIVERIES", [1])]
)
def test_without_stems_words_are_found_as_they_are_written(query: str, rows: list[int]) -> None:
    assert found(query, tokenizer="simple") == rows


def test_without_positions_words_in_a_row_are_words() -> None:
    assert found("late-delivery", positions=False) == [0, 2]
    with pytest.raises(tailrace.InvalidError, match="made without positions"):
        found('"late delivery"', positions=False)


def test_a_column_that_the_index_lacks_is_named() -> None:
    with pytest.raises(tailrace.InvalidError, match=r"no column 'author'; it has note, title"):
        found("author:late")


def test_a_query_of_marks_has_no_word() -> None:
    with pytest.raises(tailrace.InvalidError, match="no word to search for"):
        found("?! ...")
