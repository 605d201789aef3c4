"""Rows of CSV: every field as text, or NULL if it is empty and not quoted.

Arrow parses one block of whole records at a time. Which rows it skipped, and on which line each
of the others begins, follows from the records that went in.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tailrace.errors import CorruptError
from tailrace.loading.options import Format, Options
from tailrace.loading.rows import Block
from tailrace.loading.source import InputFile
from tailrace.loading.text import Dialect, Records, TextRange, misfit, readable


def dialect_of(file: InputFile, options: Options) -> Dialect | None:
    """How a CSV file is written; None for other formats."""
    if file.format is not Format.CSV:
        return None
    delimiter = options.delimiter or ("\t" if file.has_tabs else ",")
    return Dialect(
        delimiter=delimiter.encode(),
        quote=None if options.quote is None else options.quote.encode(),
        nulls=options.nulls,
        has_header=options.header,
    )


def read_csv(
    text: TextRange, dialect: Dialect, *, width: int, part: int, skip_header: bool
) -> Iterator[Block]:
    """The rows of a range of a file, in columns that are named by numbers."""
    for records in text:
        if skip_header:
            skip_header = False
            records = without_first(records)  # noqa: PLW2901
        yield parse(records, dialect, width=width, part=part)


def split_fields(record: str, dialect: Dialect) -> list[str]:
    """The fields of a single record."""
    source, delimiter = io.StringIO(record, newline=""), dialect.delimiter.decode()
    if dialect.quote is None:
        fields = csv.reader(source, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        fields = csv.reader(source, delimiter=delimiter, quotechar=dialect.quote.decode())
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


def parse(records: Records, dialect: Dialect, *, width: int, part: int) -> Block:
    """The rows of whole records."""
    records, broken = readable(records, part)
    rows, odd = _read(records.data, width, dialect)
    there = np.ones(len(records.starts), bool)
    for number, fields in odd:
        there[number] = False
        plural = "field" if fields == 1 else "fields"
        broken.append(misfit(records, number, part, f"it has {fields} {plural}, not {width}"))
    numbers = np.flatnonzero(there)
    if rows.num_rows != len(numbers):
        raise CorruptError(f"{len(numbers)} records of CSV were read as {rows.num_rows} rows")
    return Block(
        rows=rows,
        lines=records.lines[numbers],
        text=lambda row: records.text(numbers[row]),
        broken=broken,
    )


def _read(data: bytes, width: int, dialect: Dialect) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Fields as text; and the records of another width: their number and width."""
    names = [str(number) for number in range(width)]
    odd: list[tuple[int, int]] = []

    def skip(row: pyarrow.csv.InvalidRow) -> str:
        odd.append((row.number - 1, row.actual_columns))
        return "skip"

    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in names}), odd
    quote = False if dialect.quote is None else dialect.quote.decode()
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=len(data) + 1,  # so that rows are numbered as the records are
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter.decode(),
            quote_char=quote,
            newlines_in_values=bool(quote),
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=["", *dialect.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the whole block has been checked
        ),
    )
    return table, odd
