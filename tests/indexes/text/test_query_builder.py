"""What tantivy finds for queries, in an index of a few texts in memory."""

from __future__ import annotations

from typing import Any

import pytest
import tantivy

import tailrace
from tailrace.indexes.definition import Definition
from tailrace.indexes.text.kind import TextOptions
from tailrace.indexes.text.query_builder import QueryBuilder
from tailrace.indexes.text.schema import field_of, make_schema, register

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
