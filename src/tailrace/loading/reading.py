"""Reads a part into rows of the table, in this process and in Spark's workers alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.loading.csv_rows import read_csv
from tailrace.loading.json_rows import read_json
from tailrace.loading.options import Format
from tailrace.loading.parquet_rows import read_parquet
from tailrace.loading.parts import Part, PartEnd
from tailrace.loading.rows import Block, Fitted
from tailrace.loading.text import TextRange


class PartReader:
    """The rows of one part, block by block; `end` says what has been read so far."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.end = PartEnd(begin=0, end=0, lines=0, rows=0)

    def __iter__(self) -> Iterator[Fitted]:
        part = self._part
        if part.file.format is Format.PARQUET:
            with part.file.open() as source:
                groups = range(part.start, part.end or 0)
                yield from self._fit(read_parquet(part.file, source, groups=groups))
            return
        with _text(part, start=part.start, end=part.end) as text:
            yield from self._fit(_blocks(part, text), text)

    def _fit(self, blocks: Iterator[Block], text: TextRange | None = None) -> Iterator[Fitted]:
        rows = 0
        for block in blocks:
            rows += len(block.lines) + len(block.broken)
            # Kept up to date: a task that stops early still tells where its part began.
            self.end = _end(text, rows)
            yield self._part.layout.filling.fit(block, self._part.number)
        self.end = _end(text, rows)


def first_line(part: Part, begin: int) -> int | None:
    """The line at which a part begins, from 1; None if no record begins at the byte `begin`.

    All text before it is read, but not converted.
    """
    if part.file.format is Format.PARQUET:
        return part.first_row + 1
    if part.start == 0:
        return 1
    with _text(part, start=0, end=part.start) as before:
        for _ in before:
            pass
    return before.lines + 1 if before.end == begin else None


@contextmanager
def _text(part: Part, *, start: int, end: int | None) -> Iterator[TextRange]:
    """A range of the file that a part is in."""
    with part.file.open_text() as source:
        yield TextRange(
            source, name=part.file.name, dialect=part.layout.dialect, start=start, end=end
        )


def _blocks(part: Part, text: TextRange) -> Iterator[Block]:
    layout = part.layout
    if layout.dialect is None:
        return read_json(text, fields=layout.json, part=part.number)
    return read_csv(
        text,
        layout.dialect,
        width=layout.width,
        part=part.number,
        skip_header=layout.dialect.has_header and part.start == 0,
    )


def _end(text: TextRange | None, rows: int) -> PartEnd:
    if text is None:  # Parquet: a row is a line
        return PartEnd(begin=0, end=0, lines=rows, rows=rows)
    return PartEnd(begin=text.begin, end=text.end, lines=text.lines, rows=rows)
