"""Searches the text of several segments as if they were one.

Tantivy opens a directory, so one is composed of links to the segments' files, of files that mark
hidden documents, and of a description. Statistics cover all documents of the files, hidden ones
included: scores do not depend on how rows are divided into segments.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import weakref
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tantivy

from tailrace.indexes.definition import Definition
from tailrace.indexes.kind import Hit, Searcher
from tailrace.indexes.text.files import (
    META,
    PARTS,
    field_of,
    first_numbers,
    link_part,
    order_name,
    register,
)
from tailrace.indexes.text.query import QueryBuilder

if TYPE_CHECKING:
    from tailrace.indexes.kind import Hidden


_SNIPPET = 160  # characters of a highlight, about
# How tantivy ends each of its files: a description, its length, and this number.
_MAGIC = 1337
_FORMAT = {"major": 0, "minor": 27, "patch": 0, "index_format_version": 7}


class OpenText:
    """Links to the files of one segment: they stay as long as this does."""

    def __init__(self, files: Path, directory: Path) -> None:
        """`directory` is an empty one on the same disk."""
        self.directory = directory
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        for file in files.iterdir():
            os.link(file, directory / file.name)


class TextSearcher(Searcher):
    """Searches the texts of some segments, which are opened for the first query."""

    def __init__(
        self,
        definition: Definition,
        names: Sequence[str],
        segments: Sequence[tuple[OpenText, Hidden]],
        temporary: Callable[[], Path],
    ) -> None:
        """`names` are the index's columns as they are called now."""
        self._definition, self._segments, self._temporary = definition, segments, temporary
        self._queries = QueryBuilder(definition, names)
        self._live = sum(int((~hidden).sum()) for _, hidden in segments)

    def search(self, query: object, limit: int) -> list[Hit]:
        """The rows that fit a query best, the best first."""
        parsed = self._queries.build(query)
        return self._combined.search(parsed, min(limit, self._live)) if self._live else []

    def highlights(self, query: object, texts: Sequence[Sequence[str | None]]) -> list[str | None]:
        """For each row the part of its first column that has something to show."""
        combined, parsed = self._combined, self._queries.build(query)
        fields = [field_of(number) for number in self._definition.columns]
        generators = []
        for field in fields:
            generator = tantivy.SnippetGenerator.create(
                combined.searcher, parsed, combined.schema, field
            )
            generator.set_max_num_chars(_SNIPPET)
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

    @cached_property
    def _combined(self) -> CombinedSegments:
        temporary = self._temporary()
        try:
            return CombinedSegments(self._definition, self._segments, temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class CombinedSegments:
    """Segments opened as one tantivy index."""

    def __init__(
        self,
        definition: Definition,
        segments: Sequence[tuple[OpenText, Hidden]],
        temporary: Path,
    ) -> None:
        """`temporary` is an empty directory on the same disk; it goes once all is open."""
        parts: list[dict[str, Any]] = []
        meta: dict[str, Any] = {}
        # By the number of a part's first document: its segment, and its documents' positions.
        places: dict[int, tuple[int, int | npt.NDArray[np.int64]]] = {}
        for order, (segment, all_hidden) in enumerate(segments):
            described = json.loads((segment.directory / PARTS).read_text())
            meta = json.loads((segment.directory / META).read_text())
            for segment_id, start, size in described["parts"]:
                link_part(segment.directory, segment_id, temporary)
                where: Any = start
                if start is None:
                    where = np.load(segment.directory / order_name(segment_id))
                    hidden = all_hidden[where]
                else:
                    hidden = all_hidden[start : start + size]
                parts.append(_part(temporary, segment_id, hidden))
                first = int(where[0]) if start is None else start
                places[described["base"] + first] = (order, where)
        (temporary / META).write_text(json.dumps({**meta, "segments": parts, "opstamp": 1}))
        self._index = tantivy.Index.open(str(temporary))
        self._index.config_reader("Manual", 0)  # nothing will ever be added
        register(self._index, definition)
        self.searcher = self._index.searcher()
        self.schema = self._index.schema
        # Tantivy has its own order of parts.
        self._places = [places[number] for number in first_numbers(self.searcher)]
        # Tantivy may still be leaving a lock there: the caller tries once more.
        shutil.rmtree(temporary, ignore_errors=True)

    def search(self, query: tantivy.Query, limit: int) -> list[Hit]:
        """The best rows, the best first."""
        hits = []
        for score, address in self.searcher.search(query, limit, count=False).hits:
            order, where = self._places[address.segment_ord]
            doc = address.doc
            position = where + doc if isinstance(where, int) else int(where[doc])
            hits.append((score, order, position))
        return hits


def _part(directory: Path, segment_id: str, hidden: Hidden) -> dict[str, Any]:
    """Describe a part, and write the file that marks its hidden documents."""
    count = int(hidden.sum())
    described = {"segment_id": segment_id, "max_doc": len(hidden), "deletes": None}
    if count:
        bits = np.zeros(-(-len(hidden) // 64) * 64, np.uint8)
        bits[: len(hidden)] = ~hidden
        body = struct.pack("<I", len(hidden)) + np.packbits(bits, bitorder="little").tobytes()
        name = f"{segment_id.replace('-', '')}.1.del"
        (directory / name).write_bytes(_with_footer(body))
        described["deletes"] = {"num_deleted_docs": count, "opstamp": 1}
    return described


def _with_footer(body: bytes) -> bytes:
    footer = {"version": _FORMAT, "crc": zlib.crc32(body)}
    text = json.dumps(footer, separators=(",", ":")).encode()
    return body + text + struct.pack("<II", len(text), _MAGIC)
