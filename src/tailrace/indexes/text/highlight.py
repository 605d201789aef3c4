"""The place of a text that a query fits best, with the words that fit in bold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tantivy

from tailrace.indexes.text.library import field_of

if TYPE_CHECKING:
    from tailrace.indexes.reader import Reader

_LENGTH = 160  # letters, about


def highlights(
    reader: Reader, query: object, texts: Sequence[Sequence[str | None]]
) -> list[str | None]:
    """For each row a piece of HTML, of the first of its columns that has something to show.

    `texts` are the columns of the rows that were found.
    """
    made = reader.queries.make(query)
    fields = [field_of(number) for number in reader.state.definition.columns]
    searcher = reader.searcher
    generators = []
    for field in fields:
        generator = tantivy.SnippetGenerator.create(searcher.searcher, made, searcher.schema, field)
        generator.set_max_num_chars(_LENGTH)
        generators.append(generator)
    found: list[str | None] = []
    for row in zip(*texts, strict=True):
        shown = None
        for field, generator, text in zip(fields, generators, row, strict=True):
            if text is None or shown:
                continue
            document = tantivy.Document()
            document.add_text(field, text)
            shown = generator.snippet_from_doc(document).to_html() or None
        found.append(shown)
    return found
