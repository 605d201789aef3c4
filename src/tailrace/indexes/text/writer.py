"""Builds the tantivy files of one segment."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import tantivy

from tailrace.indexes.definition import Definition
from tailrace.indexes.text.library import ROW, field_of, make_schema, register

# Bytes of words that are held before they are written: enough for some million short texts, so
# that there is nothing to merge.
_HEAP = 400_000_000
META, PARTS = "meta.json", "parts.json"
_ENDINGS = ("idx", "pos", "term", "fieldnorm", "fast", "store")


class TextWriter:
    """One segment under construction, in a directory."""

    def __init__(self, definition: Definition, directory: Path, *, small: bool) -> None:
        self._directory = directory
        index = tantivy.Index(make_schema(definition), path=str(directory))
        register(index, definition)
        self._index = index
        self._writer = index.writer(heap_size=_HEAP // 8 if small else _HEAP, num_threads=1)
        self._fields = [field_of(number) for number in definition.columns]
        # Documents of a segment are numbered on from here: how they are found again among others.
        self._base = secrets.randbits(30) << 32
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
        """Write what is held; returns the files."""
        self._writer.commit()
        self._writer.wait_merging_threads()
        parts = self._parts()
        described = {"base": self._base, "parts": parts}
        (self._directory / PARTS).write_text(json.dumps(described))
        return sorted(
            file
            for file in self._directory.iterdir()
            if not file.name.startswith(".") and not file.name.endswith(".lock")
        )

    def _parts(self) -> list[tuple[str, int, int]]:
        """Tantivy's own parts: their ids, where each begins, and how many documents it has.

        A part holds documents in the order in which they came, without a gap. Tantivy merges eight
        parts or more by itself, neighbours or not: segments are kept so small that there are fewer.
        """
        meta = json.loads((self._directory / META).read_text())
        found = []
        for part in meta["segments"]:
            start = 0
            if len(meta["segments"]) > 1:
                start = self._first_number(meta, part) - self._base
            found.append((part["segment_id"], start, part["max_doc"]))
        found.sort(key=lambda part: part[1])
        ends = [start for _, start, _ in found[1:]] + [self.rows]
        assert all(start + size == end for (_, start, size), end in zip(found, ends, strict=True))
        return found

    def _first_number(self, meta: dict[str, Any], part: dict[str, Any]) -> int:
        """Of a part, which tells no other way what is in it than alone in an index."""
        alone = self._directory / ".alone"
        alone.mkdir()
        try:
            link_part(self._directory, part["segment_id"], alone)
            (alone / META).write_text(json.dumps({**meta, "segments": [part]}))
            (number,) = first_numbers(tantivy.Index.open(str(alone)).searcher())
        finally:
            shutil.rmtree(alone)
        return number


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
