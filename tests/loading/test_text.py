"""Records of text are cut where a CSV reader that nobody here wrote ends them."""

from __future__ import annotations

import csv
import io
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import InvalidError
from tailrace.loading import text as text_module
from tailrace.loading.csv_rows import parse
from tailrace.loading.text import Dialect, TextRange
from tests.support import counted

DIALECT = Dialect(delimiter=b",", quote=b'"')
WIDEST = 6

Row = tuple[int, list[str]]  # the line that it begins on, and its fields


def read(data: bytes, start: int, end: int | None, block: int) -> tuple[list[Row], TextRange]:
    text = TextRange(
        pa.BufferReader(data), name="x", dialect=DIALECT, start=start, end=end, block_bytes=block
    )
    rows: list[Row] = []
    for records in text:
        for width in range(1, WIDEST):
            found = parse(records, DIALECT, width=width, part=0)
            fields = [[v or "" for v in row.values()] for row in found.rows.to_pylist()]
            rows += zip(found.lines.tolist(), fields, strict=True)
    return sorted(rows), text


def expected(data: bytes) -> list[Row]:
    rows = []
    reader = csv.reader(io.StringIO(data.decode(), newline=""))
    line = 0
    for fields in reader:
        if fields:
            rows.append((line, fields))
        line = reader.line_num
    return [row for row in rows if len(row[1]) < WIDEST]


def is_closed(data: bytes) -> bool:
    """Whether the reader ends outside quotes: then one more line is one more row."""
    return len(expected(data + b"\nz")) == len(expected(data)) + 1


texts = st.lists(
    st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "a", "é", '"a\nb"', '"x""y"', "\n\n"]),
    max_size=25,
).map(lambda parts: "".join(parts).encode())


def check_records(data: bytes, block: int) -> None:
    counted.count("texts, read in blocks")
    if is_closed(data):
        rows, text = read(data, 0, None, block)
        assert rows == expected(data)
        assert text.end == len(data)


def check_ranges(data: bytes, block: int, cuts: set[int]) -> None:
    counted.count("texts, read in ranges")
    if not is_closed(data):
        return
    borders = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    ranges = [
        read(data, start, None if end == len(data) else end, block)
        for start, end in pairwise(borders)
    ]
    if all(a.end == b.begin for (_, a), (_, b) in pairwise(ranges)):
        line, found = 0, []
        for rows, text in ranges:
            found += [(line + at, fields) for at, fields in rows]
            line += text.lines
        assert found == expected(data)


blocks = st.integers(1, 30)
records = given(data=texts, block=blocks)
ranges_too = given(data=texts, block=blocks, cuts=st.sets(st.integers(1, 60), max_size=3))
few = settings(max_examples=60)
many = settings(max_examples=3000, derandomize=False)


def test_records_and_their_lines_are_those_of_another_reader() -> None:
    few(records(check_records))()


def test_ranges_that_join_have_the_records_of_the_whole() -> None:
    few(ranges_too(check_ranges))()


@pytest.mark.stress
def test_many_new_texts() -> None:
    many(records(check_records))()
    many(ranges_too(check_ranges))()


def test_ranges_of_lines_always_join() -> None:
    data = b"".join(b"%d,%d\r\n" % (n, n * n) for n in range(50))
    for size in range(1, 40, 6):
        borders = [*range(0, len(data), size), len(data)]
        ends = [read(data, *pair, 16)[1] for pair in pairwise(borders)]
        assert all(a.end == b.begin for a, b in pairwise(ends)), size


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    rows, text = read(b"\xef\xbb\xbfa,b\n1,2\n", 0, 5, 100)
    assert rows == [(0, ["a", "b"])]
    assert text.end == 7
    with pytest.raises(InvalidError, match="UTF-16"):
        read("a,b\n".encode("utf-16"), 0, None, 100)


def test_a_quote_that_is_never_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'1,2\n3,"4\n5,6\n'
    whole, rest = TextRange(pa.BufferReader(data), name="x", dialect=DIALECT)
    assert (whole.unclosed, whole.lines.tolist()) == (False, [0])
    assert (rest.unclosed, rest.lines.tolist()) == (True, [1])
    monkeypatch.setattr(text_module, "LARGEST_RECORD", 1000)
    source = pa.BufferReader(data + b"7,8\n" * 500)
    with pytest.raises(InvalidError, match=r"begins at byte 4 is longer .* never closed"):
        list(TextRange(source, name="x", dialect=DIALECT, block_bytes=500))
