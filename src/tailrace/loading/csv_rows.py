"""Rows of CSV: every field as text, NULL where nothing stands between two delimiters.

Arrow reads one block of whole records at a time; what it finds broken, and where each of its
rows stands, is known from the records that went in.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tailrace.errors import CorruptError
from tailrace.loading.options import Options
from tailrace.loading.rows import Block
from tailrace.loading.source import InputFile
from tailrace.loading.text import Quoting, Records, TextRange, misfit, readable


def quoting_of(file: InputFile, options: Options) -> Quoting:
    """How a file's fields are told apart."""
    delimiter = options.delimiter or ("\t" if file.has_tabs else ",")
    quote = options.quote
    return Quoting(delimiter=delimiter.encode(), quote=None if quote is None else quote.encode())


def read_csv(
    text: TextRange, *, width: int, part: int, skip_header: bool, quoting: Quoting, options: Options
) -> Iterator[Block]:
    """The rows of a range of a file, in columns that are named by numbers."""
    for records in text:
        if skip_header:
            skip_header = False
            records = without_first(records)  # noqa: PLW2901
        yield parse(records, width=width, part=part, quoting=quoting, options=options)


def split_fields(record: str, quoting: Quoting) -> list[str]:
    """The fields of a single record."""
    source, delimiter = io.StringIO(record, newline=""), quoting.delimiter.decode()
    if quoting.quote is None:
        fields = csv.reader(source, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        fields = csv.reader(source, delimiter=delimiter, quotechar=quoting.quote.decode())
    return next(fields, [])


def without_first(records: Records) -> Records:
    """The records after a header."""
    begin = records.starts[1] if len(records.starts) > 1 else len(records.data)
    return Records(
        data=records.data[begin:],
        starts=records.starts[1:] - begin,
        ends=records.ends[1:] - begin,
        lines=records.lines[1:],
        unclosed=records.unclosed,
    )


def parse(records: Records, *, width: int, part: int, quoting: Quoting, options: Options) -> Block:
    """The rows of whole records."""
    records, broken = readable(records, part)
    rows, odd = _read(records.data, width, quoting, options.nulls)
    there = np.ones(len(records.starts), bool)
    for number, fields in odd:
        there[number] = False
        broken.append(misfit(records, number, part, f"it has {fields} fields, not {width}"))
    places = np.flatnonzero(there)
    if rows.num_rows != len(places):
        raise CorruptError(f"{len(places)} records of CSV were read as {rows.num_rows} rows")
    return Block(
        rows=rows,
        lines=records.lines[places],
        text=lambda row: records.text(places[row]),
        broken=broken,
    )


def _read(
    data: bytes, width: int, quoting: Quoting, nulls: tuple[str, ...]
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Fields as text, and the records of another width: their number and how many they have."""
    names = [str(number) for number in range(width)]
    odd: list[tuple[int, int]] = []

    def skip(row: pyarrow.csv.InvalidRow) -> str:
        odd.append((row.number - 1, row.actual_columns))
        return "skip"

    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in names}), odd
    quote = False if quoting.quote is None else quoting.quote.decode()
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=len(data) + 1,  # so that rows are numbered as the records are
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=quoting.delimiter.decode(),
            quote_char=quote,
            newlines_in_values=bool(quote),
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=["", *nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the whole block has been checked
        ),
    )
    return table, odd
