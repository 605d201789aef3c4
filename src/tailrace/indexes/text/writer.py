"""Builds the tantivy files of one segment."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tantivy

from tailrace.indexes.definition import Definition
from tailrace.indexes.text.schema import ROW, field_of, make_schema, register

# Bytes of words that are buffered: enough for some million short texts.
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
