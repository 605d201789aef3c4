"""Cuts the input into parts that are read independently, and groups them into Spark tasks.

Always true: parts are numbered in the order of the input, so that a row's part and line say which
of two rows came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tailrace.loading.layout import Layout
from tailrace.loading.options import Format
from tailrace.loading.shape import Shape
from tailrace.loading.source import InputFile


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
        spans = (
            _groups(one, size)
            if one.file.format is Format.PARQUET
            else _ranges(one, size, divide=divide)
        )
        parts += [
            Part(
                number=len(parts) + offset,
                file=one.file,
                layout=one.layout,
                size=bytes_,
                start=start,
                end=end,
                first_row=row,
            )
            for offset, (start, end, bytes_, row) in enumerate(spans)
        ]
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
