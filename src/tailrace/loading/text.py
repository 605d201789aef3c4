r"""Text files in blocks of whole records, each record with the line that it begins on.

Owned here: where a record of CSV or JSON ends. A line ends with \n, \r\n or \r, as in Arrow's
reader; a record ends with its line unless that line's end is inside quotes. A quote opens only at
the start of a field, and inside quotes a doubled one stands for itself.

Always true: a range of bytes has the records that begin inside of it. Where a range begins in the
middle of a file, its first record is taken to begin after the first \n there. That is a guess,
which is wrong inside quotes: it is right for all ranges of a file if each ends where the next one
begins (`parts.joined` looks).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.loading.rows import Lines, Misfit, cut

BLOCK_BYTES = 8 * 1024 * 1024
LARGEST_RECORD = 64 * 1024 * 1024
_TAIL_BYTES = 64 * 1024  # read at once beyond the end of a range
_LF, _CR = 10, 13
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: bytes
    quote: bytes | None  # None: no character quotes
    nulls: tuple[str, ...] = ()  # texts that mean NULL where they are not quoted
    has_header: bool = True


@dataclass(frozen=True, kw_only=True)
class Records:
    """Whole records in a piece of text. Blank lines are not among them."""

    data: bytes
    starts: Lines  # offsets in the data
    ends: Lines  # without the line's end
    lines: Lines  # at which they begin, in the range
    unclosed: bool = False  # the last one ends with the file, inside quotes

    def text(self, number: int) -> str:
        """A record as text, whatever its bytes are."""
        return cut(self.data[self.starts[number] : self.ends[number]].decode("utf-8", "replace"))

    @property
    def span_lines(self) -> bool:
        """Whether one of them spans several lines."""
        return any(
            b"\n" in self.data[start:end] or b"\r" in self.data[start:end]
            for start, end in zip(self.starts, self.ends, strict=True)
        )

    def only(self, kept: npt.NDArray[np.bool_]) -> Records:
        """Some of the records, in a text of their own."""
        spans = zip(self.starts[kept], self.ends[kept], strict=True)
        pieces = [self.data[start:end] for start, end in spans]
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes + 1)]).astype(np.int64)[: len(sizes)]
        return Records(
            data=b"".join(piece + b"\n" for piece in pieces),
            starts=starts,
            ends=starts + sizes,
            lines=self.lines[kept],
        )


class TextRange:
    """The records of a range of a file's bytes; `begin`, `end` and `lines` follow the reading."""

    def __init__(
        self,
        source: pa.NativeFile,
        *,
        name: str,
        dialect: Dialect | None,  # None: JSON, where no line break is quoted
        start: int = 0,
        end: int | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._source, self._name, self._dialect = source, name, dialect
        self._start, self._limit, self._block_bytes = start, end, block_bytes
        self.begin = start  # where the first record begins
        self.end = start  # where the first record begins that is not of the range
        self.lines = 0

    def __iter__(self) -> Iterator[Records]:
        data, at_end = self._first()
        self.end = self.begin
        while True:
            split = _split(data, self._dialect, at_end=at_end)
            last = _last_used(split, self._left)
            if last is not None:
                used = int(split.stops[last])
                yield from self._records(data[:used], split, last)
                self.end += used
                self.lines += int(split.line_counts[last])
                data = data[used:]
            if at_end or (self._left is not None and self._left <= 0):
                return
            if len(data) > LARGEST_RECORD:
                raise InvalidError(
                    f"{self._name}: the record that begins at byte {self.end} is longer than "
                    f"{LARGEST_RECORD} bytes; is a quote opened and never closed?"
                )
            more = self._read(len(data))
            at_end = not more
            data += more

    @property
    def _left(self) -> int | None:
        """How many bytes of the range lie beyond `end`."""
        return None if self._limit is None else self._limit - self.end

    def _first(self) -> tuple[bytes, bool]:
        """The text from the first record on, and whether that is all."""
        if self._start == 0:
            data = self._read(0)
            if data.startswith(_OTHER_BOMS):
                raise InvalidError(f"{self._name} is UTF-16: convert it to UTF-8 first")
            plain = data.removeprefix(_BOM)
            self.begin = len(data) - len(plain)
            return plain, False
        self.begin = self._start - 1
        self._source.seek(self.begin)
        while data := self._read(0):
            line_feed = data.find(b"\n")
            if line_feed >= 0:
                self.begin += line_feed + 1
                return data[line_feed + 1 :], False
            self.begin += len(data)
        return b"", True

    def _read(self, held: int) -> bytes:
        wanted = self._block_bytes
        if self._left is not None:
            wanted = min(wanted, max(self._left - held, 0) + _TAIL_BYTES)
        try:
            return bytes(self._source.read(wanted))
        except OSError as error:
            raise InvalidError(f"{self._name} cannot be read: {error}") from error

    def _records(self, data: bytes, split: _Split, last: int) -> Iterator[Records]:
        starts = np.concatenate([[0], split.stops[:last]]).astype(np.int64)
        ends = split.ends[: last + 1]
        lines = np.concatenate([[0], split.line_counts[:last]]).astype(np.int64) + self.lines
        there = ends > starts
        if there.any():
            yield Records(
                data=data,
                starts=starts[there],
                ends=ends[there],
                lines=lines[there],
                unclosed=split.unclosed and last == len(split.stops) - 1,
            )


@dataclass(frozen=True, kw_only=True)
class _Split:
    """The records of a text, blank ones included."""

    stops: Lines  # where the next one begins
    ends: Lines  # where it ends, without the line's end
    line_counts: Lines  # lines before that
    unclosed: bool  # the last one is inside quotes to the end


def _last_used(split: _Split, left: int | None) -> int | None:
    """Of the records that are whole, the last one in the range."""
    if not len(split.stops) or (left is not None and left <= 0):
        return None
    last = len(split.stops) - 1
    return last if left is None else min(int(np.searchsorted(split.stops, left)), last)


def _split(data: bytes, dialect: Dialect | None, *, at_end: bool) -> _Split:
    array = np.frombuffer(data, np.uint8)
    marks = _line_ends(data, array, at_end=at_end)
    outside, unclosed = np.ones(len(marks), bool), False
    if dialect is not None and dialect.quote is not None and dialect.quote in data:
        quotes = np.flatnonzero(array == dialect.quote[0])
        if _is_regular(array, quotes, dialect):
            outside = np.searchsorted(quotes, marks) % 2 == 0
            unclosed = len(quotes) % 2 == 1
        else:
            outside, unclosed = _search(data, marks, dialect)
    counts = np.flatnonzero(outside) + 1
    last = marks[outside]
    # A line's end has two bytes if its last is a line feed after a carriage return.
    has_two = (last > 0) & (array[last] == _LF) & (array[np.maximum(last - 1, 0)] == _CR)
    stops, ends = last + 1, last - has_two
    if at_end and (int(stops[-1]) if len(stops) else 0) < len(data):
        # The file ends without a line's end.
        stops, ends = np.append(stops, len(data)), np.append(ends, len(data))
        counts = np.append(counts, len(marks) + 1)
    return _Split(stops=stops, ends=ends, line_counts=counts, unclosed=unclosed and at_end)


def _line_ends(data: bytes, array: Bytes, *, at_end: bool) -> Lines:
    """The last byte of each line's end, inside quotes too."""
    marks = np.flatnonzero(array == _LF)
    if b"\r" not in data:
        return marks
    returns = np.flatnonzero(array == _CR)
    if not at_end and returns[-1] == len(data) - 1:
        returns = returns[:-1]  # the next byte decides
    following = array[np.minimum(returns + 1, len(data) - 1)]
    alone = returns[(following != _LF) | (returns == len(data) - 1)]
    return np.sort(np.concatenate([marks, alone])) if len(alone) else marks


def _is_regular(array: Bytes, quotes: Lines, dialect: Dialect) -> bool:
    """Whether every quote opens, closes or is doubled: then an odd count means inside quotes."""
    border = np.array([dialect.delimiter[0], _LF, _CR, array[quotes[0]]], np.uint8)
    opening, closing = quotes[0::2], quotes[1::2]
    opening, closing = opening[opening > 0], closing[closing < len(array) - 1]
    before, after = array[opening - 1], array[closing + 1]
    return bool(np.isin(before, border).all() and np.isin(after, border).all())


def _search(data: bytes, marks: Lines, dialect: Dialect) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which line ends are outside quotes, record by record, in text with irregular quotes."""
    assert dialect.quote is not None
    record = _record_pattern(dialect.delimiter, dialect.quote)
    stops, at = [], 0
    while (match := record.match(data, at)) and match.end() > at:
        at = match.end()
        stops.append(at - 1)
    # A carriage return at the very end may be half of a line's end: `marks` knows.
    outside = np.isin(marks, np.array(stops, np.int64))
    return outside, at < len(data)


@cache
def _record_pattern(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    d, q = re.escape(delimiter), re.escape(quote)
    plain = rb"[^%b\r\n]" % d
    quoted = rb"%b(?:[^%b]|%b%b)*+%b(?!%b)%b*+" % (q, q, q, q, q, q, plain)
    field = rb"(?>%b|[^%b%b\r\n]%b*+|)" % (quoted, q, d, plain)
    return re.compile(rb"%b(?:%b%b)*+(?:\r\n|\n|\r|\Z)" % (field, d, field))


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8, faster than by decoding them."""
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def readable(records: Records, part: int) -> tuple[Records, list[Misfit]]:
    """The records that can be read, and why the others can't."""
    kept = np.ones(len(records.starts), bool)
    broken = []
    if records.unclosed:
        last = len(kept) - 1
        kept[last] = False
        broken.append(misfit(records, last, part, "a quote is opened and never closed"))
    if not is_utf8(records.data):
        for number, (start, end) in enumerate(zip(records.starts, records.ends, strict=True)):
            if kept[number] and not is_utf8(records.data[start:end]):
                kept[number] = False
                broken.append(misfit(records, number, part, "it is not UTF-8"))
    return records if kept.all() else records.only(kept), broken


def misfit(records: Records, number: int, part: int, reason: str) -> Misfit:
    """A record that is rejected as a whole."""
    line, text = int(records.lines[number]), records.text(number)
    return Misfit(part=part, line=line, reason=reason, text=text)
