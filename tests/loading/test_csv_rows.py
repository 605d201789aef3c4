"""Fields of CSV are texts or NULL, and records of another width are named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.loading.csv_rows import dialect_of, read_csv, split_fields
from tailrace.loading.options import Options
from tailrace.loading.rows import Block
from tailrace.loading.text import Dialect, TextRange
from tests.support.loading import a_file

DIALECT = Dialect(delimiter=b",", quote=b'"')


def blocks(data: bytes, dialect: Dialect = DIALECT, *, header: bool = False) -> list[Block]:
    text = TextRange(pa.BufferReader(data), name="a.csv", dialect=dialect)
    return list(read_csv(text, dialect, width=2, part=0, skip_header=header))


def read(data: bytes, dialect: Dialect = DIALECT, *, header: bool = False) -> Block:
    (block,) = blocks(data, dialect, header=header)
    return block


def values(block: Block) -> list[list[str | None]]:
    return [list(row.values()) for row in block.rows.to_pylist()]


def test_the_dialect_follows_the_name_and_the_options() -> None:
    assert dialect_of(a_file("a.jsonl"), Options()) is None
    tabs = dialect_of(
        a_file("a.csv", codec=None), Options(delimiter="\t", quote=None, nulls=("NA",))
    )
    assert tabs == Dialect(delimiter=b"\t", quote=None, nulls=("NA",))
    assert dialect_of(a_file("a.csv"), Options(header=False)) == Dialect(
        delimiter=b",", quote=b'"', has_header=False
    )


def test_an_empty_field_is_null_and_a_quoted_one_is_empty() -> None:
    assert values(read(b'a,\n"",b\n')) == [["a", None], ["", "b"]]


def test_a_text_for_null_counts_only_without_quotes() -> None:
    dialect = Dialect(delimiter=b",", quote=b'"', nulls=("NA",))
    assert values(read(b'NA,"NA"\n', dialect)) == [[None, "NA"]]


def test_quotes_hold_delimiters_line_ends_and_doubled_quotes() -> None:
    block = read(b'"a,b","c\r\n""d"""\n1,2\n')
    assert values(block) == [["a,b", 'c\r\n"d"'], ["1", "2"]]
    assert block.lines.tolist() == [0, 2]
    assert block.text(0) == '"a,b","c\r\n""d"""'


def test_without_a_quote_character_quotes_are_text() -> None:
    assert values(read(b'"a,b"\n', Dialect(delimiter=b",", quote=None))) == [['"a', 'b"']]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"1,2\nx\n3,4\n", "it has 1 field, not 2"),
        (b"1,2\n1,2,3\n3,4\n", "it has 3 fields, not 2"),
        (b"1,2\ncaf\xe9,1\n3,4\n", "it is not UTF-8"),
    ],
)
def test_a_broken_record_is_named_and_the_others_are_read(data: bytes, reason: str) -> None:
    block = read(data)
    assert values(block) == [["1", "2"], ["3", "4"]]
    assert block.lines.tolist() == [0, 2]
    assert block.text(1) == "3,4"
    (broken,) = block.broken
    assert (broken.line, broken.reason) == (1, reason)


def test_a_quote_that_is_never_closed_is_a_broken_record() -> None:
    whole, rest = blocks(b'1,2\n3,"4\n5,6\n')
    assert values(whole) == [["1", "2"]]
    assert values(rest) == []
    (broken,) = rest.broken
    assert (broken.line, broken.reason) == (1, "a quote is opened and never closed")


def test_the_header_is_left_out() -> None:
    block = read(b"\na,b\n\n1,2\n", header=True)
    assert values(block) == [["1", "2"]]
    assert block.lines.tolist() == [3]


def test_a_header_is_split_as_rows_are() -> None:
    assert split_fields('a,"b,c"', DIALECT) == ["a", "b,c"]
    assert split_fields('a,"b', Dialect(delimiter=b",", quote=None)) == ["a", '"b']
