"""Reads a part into rows of the table, in this process and in Spark's workers alike."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.loading import csv_rows
from tailrace.loading.json_rows import read_json
from tailrace.loading.options import Format, Options
from tailrace.loading.parquet_rows import read_parquet
from tailrace.loading.parts import Part, PartEnd
from tailrace.loading.rows import Block, Fitted
from tailrace.loading.text import TextRange


class PartReader:
    """The rows of one part, block by block; `end` says what there was, when all is read."""

    def __init__(self, part: Part, options: Options) -> None:
        self._part, self._options = part, options
        self.end = PartEnd(begin=0, end=0, lines=0, rows=0)

    def __iter__(self) -> Iterator[Fitted]:
        part, rows = self._part, 0
        if part.file.format is Format.PARQUET:
            with part.file.open() as source:
                groups = range(part.start, part.end or 0)
                for block in read_parquet(part.file, source, groups=groups):
                    rows += len(block.lines)
                    yield part.layout.filling.fit(block, part.number)
            self.end = PartEnd(begin=0, end=0, lines=rows, rows=rows)
            return
        with part.file.open_text() as (source, _):
            quoting = None
            if part.file.format is Format.CSV:
                quoting = csv_rows.quoting_of(part.file, self._options)
            text = TextRange(
                source, name=part.file.name, quoting=quoting, start=part.start, end=part.end
            )
            for block in self._blocks(text):
                rows += len(block.lines) + len(block.broken)
                # Also in between: who stops early still wants to know where the part began.
                self.end = PartEnd(begin=text.begin, end=text.end, lines=text.lines, rows=rows)
                yield part.layout.filling.fit(block, part.number)
            self.end = PartEnd(begin=text.begin, end=text.end, lines=text.lines, rows=rows)

    def _blocks(self, text: TextRange) -> Iterator[Block]:
        part = self._part
        if part.file.format is Format.JSON:
            return read_json(text, fields=part.layout.json, part=part.number)
        return csv_rows.read_csv(
            text,
            width=part.layout.width,
            part=part.number,
            skip_header=self._options.header and part.start == 0,
            quoting=csv_rows.quoting_of(part.file, self._options),
            options=self._options,
        )


def first_line(part: Part, begin: int, options: Options) -> int | None:
    """The line at which a part of a text begins, from 1; None if no record begins at `begin`.

    All before it is read, but not converted.
    """
    if part.file.format is Format.PARQUET:
        return part.first_row + 1
    if part.start == 0:
        return 1
    quoting = None
    if part.file.format is Format.CSV:
        quoting = csv_rows.quoting_of(part.file, options)
    with part.file.open_text() as (source, _):
        before = TextRange(source, name=part.file.name, quoting=quoting, end=part.start)
        for _ in before:
            pass
    return before.lines + 1 if before.end == begin else None
