"""Finds the part of a text that fits a query best, with the words that fit in bold."""

from __future__ import annotations

from collections.abc import Sequence

import tantivy

_LENGTH = 160  # characters, about


def highlights(
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    query: tantivy.Query,
    fields: Sequence[str],
    texts: Sequence[Sequence[str | None]],
) -> list[str | None]:
    """For each row a piece of HTML, of the first of its columns that has something to show.

    `texts` are the columns of the rows, in the order of `fields`.
    """
    generators = []
    for field in fields:
        generator = tantivy.SnippetGenerator.create(searcher, query, schema, field)
        generator.set_max_num_chars(_LENGTH)
        generators.append(generator)
    snippets: list[str | None] = []
    for row in zip(*texts, strict=True):
        shown = None
        for field, generator, text in zip(fields, generators, row, strict=True):
            if text is None or shown:
                continue
            document = tantivy.Document()
            document.add_text(field, text)
            shown = generator.snippet_from_doc(document).to_html() or None
        snippets.append(shown)
    return snippets
