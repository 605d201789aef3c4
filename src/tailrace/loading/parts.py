"""The parts that the input is cut into, which are read independently, here or in Spark's tasks.

Always true: parts are numbered in the order of the input, so that a row's part and line say which
of two rows came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from tailrace.loading.convert import Layout
from tailrace.loading.csv_rows import read_csv
from tailrace.loading.json_rows import read_json
from tailrace.loading.options import Format
from tailrace.loading.parquet_rows import read_parquet
from tailrace.loading.rows import Block, Fitted
from tailrace.loading.shape import Shape
from tailrace.loading.source import InputFile
from tailrace.loading.text import TextRange


@dataclass(frozen=True, kw_only=True)
class Part:
    """A range of a file: of bytes or, for Parquet, of row groups."""

    number: int
    file: InputFile
    layout: Layout
    size: int  # bytes
    start: int = 0  # byte or row group
    end: int | None = None  # None: to the end of the file
    first_row: int = 0  # of Parquet: rows of the file before it


@dataclass(frozen=True, kw_only=True)
class PartEnd:
    """What reading a part has shown."""

    begin: int  # where its first record begins
    end: int  # where the first record after it begins
    lines: int
    rows: int  # rejected ones included


@dataclass(frozen=True, kw_only=True)
class PreparedFile:
    """A file that has been looked at, and can be cut."""

    file: InputFile
    shape: Shape
    layout: Layout


def cut(files: Iterable[PreparedFile], *, size: int, divide: bool) -> list[Part]:
    """Cut files into parts of about `size` bytes; without `divide`, text files stay whole."""
    parts: list[Part] = []
    for one in files:
        is_parquet = one.file.format is Format.PARQUET
        spans = _groups(one, size) if is_parquet else _ranges(one, size, divide=divide)
        for start, end, bytes_, row in spans:
            part = Part(
                number=len(parts),
                file=one.file,
                layout=one.layout,
                size=bytes_,
                start=start,
                end=end,
                first_row=row,
            )
            parts.append(part)
    return parts


def _ranges(
    one: PreparedFile, size: int, *, divide: bool
) -> Iterator[tuple[int, int | None, int, int]]:
    whole = one.file.size
    count = max(1, round(whole / size)) if divide and one.shape.divisible else 1
    borders = [whole * number // count for number in range(count + 1)]
    for start, end in pairwise(borders):
        yield start, None if end == whole else end, end - start, 0


def _groups(one: PreparedFile, size: int) -> Iterator[tuple[int, int | None, int, int]]:
    """Neighbouring row groups, up to the size."""
    start, held, first_row, rows = 0, 0, 0, 0
    for number, bytes_ in enumerate(one.shape.group_bytes):
        held += bytes_
        rows += one.shape.group_rows[number]
        if held >= size or number == len(one.shape.group_bytes) - 1:
            yield start, number + 1, held, first_row
            start, held, first_row = number + 1, 0, rows


def tasks(parts: Iterable[Part], size: int) -> list[list[Part]]:
    """Group the parts, one group for each Spark task: one task reads many small files."""
    groups: list[list[Part]] = []
    room = 0
    for part in parts:
        if not groups or part.size > room:
            groups.append([])
            room = size
        groups[-1].append(part)
        room -= part.size
    return groups


def joined(parts: Sequence[Part], ends: Sequence[PartEnd]) -> bool:
    """Whether each part of a text file ended where the file's next part began."""
    return all(
        end.end == next_end.begin
        for (part, end), (next_part, next_end) in pairwise(zip(parts, ends, strict=True))
        if part.file.location == next_part.file.location and part.file.format is not Format.PARQUET
    )


def first_lines(parts: Sequence[Part], ends: Sequence[PartEnd]) -> list[int]:
    """The line of its file on which each part begins, from 1."""
    begins: list[int] = []
    line = 1
    for number, part in enumerate(parts):
        if part.start == 0:
            line = 1
        begins.append(part.first_row + 1 if part.file.format is Format.PARQUET else line)
        line += ends[number].lines
    return begins


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
            yield self._part.layout.fit(block, self._part.number)
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
