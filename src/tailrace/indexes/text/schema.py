"""Tantivy's schema of an index: its fields, and how text becomes words."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from tailrace.errors import InvalidError
from tailrace.indexes.definition import Definition

try:
    import tantivy
except ImportError as error:
    raise InvalidError(
        "full-text indexes need an extra: pip install 'tailrace[fulltext]'"
    ) from error

if TYPE_CHECKING:
    from tantivy import Index, Schema, TextAnalyzer

# What wrote a segment. Another version may read it differently, so it is rebuilt then.
FORMAT = f"fulltext-1 tantivy-{'.'.join(version('tantivy').split('.')[:2])}"
# A fast field: the number of the segment that a document is in, and its position there.
ROW = "row"
_TOKENIZER = "words"
_LONGEST = 255  # bytes of a word; longer ones are not found
# Scripts without spaces between words: each letter is indexed as a word, and a run of letters is
# searched for as a phrase.
_SINGLE = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}"
_GRAMS = rf"[{_SINGLE}]|[[\p{{L}}\p{{N}}\p{{M}}]--[{_SINGLE}]]+"


def field_of(column_id: int) -> str:
    """The field of a column."""
    return f"c{column_id}"


def make_schema(definition: Definition) -> Schema:
    """The fields: one for each column, and one for the row's number."""
    builder = tantivy.SchemaBuilder()
    for number in definition.columns:
        builder.add_text_field(
            field_of(number),
            stored=False,
            tokenizer_name=_TOKENIZER,
            index_option="position" if definition.options.positions else "freq",
        )
    builder.add_unsigned_field(ROW, stored=False, indexed=False, fast=True)
    return builder.build()


def make_analyzer(definition: Definition, *, stems: bool = True) -> TextAnalyzer:
    """Text to words; without `stems`, as they are written."""
    is_gram = definition.options.tokenizer == "ngram"
    tokenizer = tantivy.Tokenizer.regex(_GRAMS) if is_gram else tantivy.Tokenizer.simple()
    builder = tantivy.TextAnalyzerBuilder(tokenizer)
    builder = builder.filter(tantivy.Filter.remove_long(_LONGEST))
    builder = builder.filter(tantivy.Filter.lowercase())
    if definition.options.tokenizer == "default" and stems:
        builder = builder.filter(tantivy.Filter.stemmer(definition.options.language))
    return builder.build()


def register(index: Index, definition: Definition) -> None:
    """Make the tokenizer known to an open index."""
    index.register_tokenizer(_TOKENIZER, make_analyzer(definition))
