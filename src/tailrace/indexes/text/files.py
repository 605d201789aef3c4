"""A segment's tantivy files: their fields, how text becomes words, and what writes them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.indexes.definition import Definition

try:
    import tantivy
except ImportError as error:
    raise InvalidError(
        "full-text indexes need an extra: pip install 'tailrace[fulltext]'"
    ) from error

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
# Bytes of words that are buffered: enough for some million short texts.
_HEAP = 400_000_000
META, PARTS = "meta.json", "parts.json"
_ENDINGS = ("idx", "pos", "term", "fieldnorm", "fast", "store")


def field_of(column_id: int) -> str:
    """The field of a column."""
    return f"c{column_id}"


def make_schema(definition: Definition) -> tantivy.Schema:
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


def make_analyzer(definition: Definition, *, stems: bool = True) -> tantivy.TextAnalyzer:
    """Text to words; without `stems`, as they are written."""
    is_gram = definition.options.tokenizer == "ngram"
    tokenizer = tantivy.Tokenizer.regex(_GRAMS) if is_gram else tantivy.Tokenizer.simple()
    builder = tantivy.TextAnalyzerBuilder(tokenizer)
    builder = builder.filter(tantivy.Filter.remove_long(_LONGEST))
    builder = builder.filter(tantivy.Filter.lowercase())
    if definition.options.tokenizer == "default" and stems:
        builder = builder.filter(tantivy.Filter.stemmer(definition.options.language))
    return builder.build()


def register(index: tantivy.Index, definition: Definition) -> None:
    """Make the tokenizer known to an open index."""
    index.register_tokenizer(_TOKENIZER, make_analyzer(definition))


class TextWriter:
    """One segment under construction, in a directory."""

    def __init__(self, definition: Definition, directory: Path, *, small: bool) -> None:
        self._directory = directory
        index = tantivy.Index(make_schema(definition), path=str(directory))
        register(index, definition)
        self._index = index
        self._writer = index.writer(heap_size=_HEAP // 8 if small else _HEAP, num_threads=1)
        self._fields = [field_of(number) for number in definition.columns]
        # Documents are numbered from here, which tells the segments apart when they are combined.
        self._base = secrets.randbits(31) << 32
        self.rows = 0

    def add(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Add rows, of which none is NULL in all columns."""
        add, base = self._writer.add_document, self._base
        texts = [column.to_pylist() for column in columns]
        if len(texts) == 1:
            (field,), (values,) = self._fields, texts
            for number, text in enumerate(values, base + self.rows):
                document = tantivy.Document()
                document.add_text(field, text)
                document.add_unsigned(ROW, number)
                add(document)
        else:
            for number, row in enumerate(zip(*texts, strict=True), base + self.rows):
                document = tantivy.Document()
                for field, text in zip(self._fields, row, strict=True):
                    if text is not None:
                        document.add_text(field, text)
                document.add_unsigned(ROW, number)
                add(document)
        self.rows += len(texts[0])

    def finish(self) -> list[Path]:
        """Write what is left; returns the files."""
        self._writer.commit()
        self._writer.wait_merging_threads()
        described = {"base": self._base, "parts": self._parts()}
        (self._directory / PARTS).write_text(json.dumps(described))
        return sorted(
            file
            for file in self._directory.iterdir()
            if not file.name.startswith(".") and not file.name.endswith(".lock")
        )

    def _parts(self) -> list[tuple[str, int | None, int]]:
        """Tantivy's own parts: their ids, where each begins, and how many documents it has.

        A part holds documents in the order in which they came, without a gap; but tantivy merges
        parts when there are many, neighbours or not, and then their order is a file beside them.
        """
        meta = json.loads((self._directory / META).read_text())
        if len(meta["segments"]) == 1:
            return [(meta["segments"][0]["segment_id"], 0, self.rows)]
        parts: list[tuple[str, int | None, int]] = []
        for part in meta["segments"]:
            order = self._order(meta, part)
            start: int | None = int(order[0])
            if not np.array_equal(order, np.arange(order[0], order[0] + len(order))):
                np.save(self._directory / order_name(part["segment_id"]), order)
                start = None
            parts.append((part["segment_id"], start, len(order)))
        return parts

    def _order(self, meta: dict[str, Any], part: dict[str, Any]) -> npt.NDArray[np.int64]:
        """The positions of a part's documents; it tells them only when alone in an index."""
        alone = self._directory / ".alone"
        alone.mkdir()
        try:
            link_part(self._directory, part["segment_id"], alone)
            (alone / META).write_text(json.dumps({**meta, "segments": [part]}))
            searcher = tantivy.Index.open(str(alone)).searcher()
            places = [tantivy.DocAddress(0, number) for number in range(part["max_doc"])]
            numbers = searcher.fast_field_values(ROW, places)
        finally:
            shutil.rmtree(alone, ignore_errors=True)
        return np.array([int(number or 0) - self._base for number in numbers], np.int64)


def order_name(segment_id: str) -> str:
    """The file with the positions of a part's documents."""
    return f"{segment_id.replace('-', '')}.order.npy"


def link_part(directory: Path, segment_id: str, target: Path) -> None:
    """Link the files of a part into another directory."""
    name = segment_id.replace("-", "")
    for ending in _ENDINGS:
        file = directory / f"{name}.{ending}"
        if file.exists():
            os.link(file, target / file.name)


def first_numbers(searcher: tantivy.Searcher) -> list[int]:
    """The number of the first document of each part, in tantivy's own order of them."""
    places = [tantivy.DocAddress(part, 0) for part in range(searcher.num_segments)]
    return [int(number or 0) for number in searcher.fast_field_values(ROW, places)]
