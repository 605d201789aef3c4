"""What a file looks like, from its first bytes or its footer.

Owned here: what is asked of a file before it is loaded: the names and types of its columns, and
whether it can be read in several parts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.loading import csv_rows, infer, parquet_rows
from tailrace.loading.options import Format, Options
from tailrace.loading.source import InputFile
from tailrace.loading.text import Dialect, Records, TextRange
from tailrace.spark_sql import types

Names = Sequence[str] | None

SAMPLE_BYTES = 1024 * 1024  # of one file
_ALL_SAMPLES = 64 * 1024 * 1024  # of all files together, about
_LEAST_SAMPLE = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is known of a file before its rows are loaded."""

    # By name, in the file's order: Parquet's own, or else inferred from a sample. Null if the
    # sample has no value; of JSON only the keys in the sample.
    columns: infer.Columns
    divisible: bool  # whether it can be read in several parts
    row_bytes: float = 1.0  # of text: the average length of a record
    group_rows: tuple[int, ...] = ()  # of Parquet: the rows of each row group
    group_bytes: tuple[int, ...] = ()


def sample_bytes(files: int) -> int:
    """How much of each file is looked at."""
    return min(SAMPLE_BYTES, max(_LEAST_SAMPLE, _ALL_SAMPLES // files))


def look_at(file: InputFile, options: Options, *, size: int, names: Names) -> Shape:
    """A file's shape. `names` are the columns of CSV files without a header."""
    if file.format is Format.PARQUET:
        return _parquet_shape(file)
    dialect = csv_rows.dialect_of(file, options)
    with file.open_text() as text:
        sample = list(TextRange(text, name=file.name, dialect=dialect, end=size))
    if not sample:
        return Shape(columns={}, divisible=False)
    if dialect is None:
        return _json_shape(file, sample)
    return _csv_shape(file, sample, dialect, names)


def _parquet_shape(file: InputFile) -> Shape:
    with file.open() as source:
        parquet = parquet_rows.open_parquet(file, source)
        schema, footer = parquet_rows.schema_of(parquet), parquet.metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    _check_names(file, schema.names)
    columns: infer.Columns = {}
    for field in schema:
        try:
            columns[field.name] = types.canonical(field.type)
        except InvalidError as error:
            raise InvalidError(f"{file.name}, column {field.name!r}: {error}") from error
    return Shape(
        columns=columns,
        divisible=True,
        group_rows=tuple(group.num_rows for group in groups),
        group_bytes=tuple(group.total_byte_size for group in groups),
    )


def _csv_shape(file: InputFile, sample: list[Records], dialect: Dialect, names: Names) -> Shape:
    row_bytes = _row_bytes(sample)
    fields = csv_rows.split_fields(_first_line(file, sample), dialect)
    divisible = file.codec is None and not any(records.span_lines for records in sample)
    if dialect.has_header:
        names, sample = fields, [csv_rows.without_first(sample[0]), *sample[1:]]
    names = names or []
    if len(names) != len(fields):
        raise InvalidError(
            f"{file.name} has {len(fields)} fields in its first line, and these names are known: "
            f"{', '.join(names) or 'none'}; name all of its columns, in order, with columns"
        )
    _check_names(file, names)
    rows = pa.concat_tables(
        csv_rows.parse(records, dialect, width=len(names), part=0).rows for records in sample
    )
    kinds = [infer.of_texts(column.combine_chunks()) for column in rows.columns]
    return Shape(
        columns=dict(zip(names, kinds, strict=True)), divisible=divisible, row_bytes=row_bytes
    )


def _json_shape(file: InputFile, sample: list[Records]) -> Shape:
    if _first_line(file, sample).lstrip().startswith("["):
        raise InvalidError(
            f"{file.name} is one JSON array: write an object on each line instead, as "
            "jq -c '.[]' does"
        )
    rows: list[dict[str, Any]] = []
    for records in sample:
        for start, end in zip(records.starts, records.ends, strict=True):
            with suppress(ValueError, RecursionError):  # such a line is rejected later
                row = json.loads(records.data[start:end])
                rows += [row] if isinstance(row, dict) else []
    # A key is spelled as in the first row that has it; others are rejected row by row.
    spelled: dict[str, str] = {}
    columns = {
        name: kind
        for name, kind in infer.of_objects(rows).items()
        if spelled.setdefault(name.casefold(), name) == name
    }
    divisible = file.codec is None
    return Shape(columns=columns, divisible=divisible, row_bytes=_row_bytes(sample))


def _row_bytes(sample: list[Records]) -> float:
    return sum(len(one.data) for one in sample) / sum(len(one.starts) for one in sample)


def _first_line(file: InputFile, sample: list[Records]) -> str:
    records = sample[0]
    try:
        return records.data[records.starts[0] : records.ends[0]].decode()
    except UnicodeDecodeError as error:
        raise InvalidError(f"{file.name} is not UTF-8: convert it first") from error


def _check_names(file: InputFile, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InvalidError(f"{file.name}: column {number} has no name")
        if name.casefold() in seen:
            raise InvalidError(f"{file.name} has two columns called {name!r}")
        seen.add(name.casefold())
