"""What a file looks like, from its first bytes or its footer: its columns, and how it can be read.

Always true: a type is inferred only if it loses nothing of the sample. So digits with a leading
zero or a plus stay text, and so do whole numbers that are too large for a bigint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.loading import csv_rows, parquet_rows
from tailrace.loading.convert import fits
from tailrace.loading.options import Format, Options
from tailrace.loading.source import InputFile
from tailrace.loading.text import Dialect, Records, TextRange
from tailrace.spark_sql import types
from tailrace.spark_sql.types import TIMESTAMP, TIMESTAMP_NTZ

Names = Sequence[str] | None
Columns = dict[str, pa.DataType]  # by name, in order; null: nothing was seen

SAMPLE_BYTES = 1024 * 1024  # of one file
_ALL_SAMPLES = 64 * 1024 * 1024  # of all files together, about
_LEAST_SAMPLE = 16 * 1024

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^(-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|-?inf(inity)?))$"
_TRUTH = r"^(?i:true|false)$"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is known of a file before its rows are loaded."""

    # By name, in the file's order: Parquet's own, or else inferred from a sample. Null if the
    # sample has no value; of JSON only the keys in the sample.
    columns: Columns
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
    columns: Columns = {}
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
    kinds = [type_of_texts(column.combine_chunks()) for column in rows.columns]
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
        for name, kind in columns_of_objects(rows).items()
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


def type_of_texts(texts: pa.Array, *, numbers: bool = True) -> pa.DataType:
    """The narrowest type that fits all texts."""
    there = pc.utf8_trim_whitespace(texts.drop_null())
    there = there.filter(pc.not_equal(there, ""))
    if not len(there):
        return pa.null() if texts.null_count == len(texts) else pa.string()
    if numbers:
        if _all(there, _TRUTH):
            return pa.bool_()
        if _all(there, _NUMBER):
            whole = there.filter(pc.match_substring_regex(there, _WHOLE))
            if not fits(whole, pa.int64()) or not fits(there, pa.float64()):
                return pa.string()
            return pa.int64() if len(whole) == len(there) else pa.float64()
    for kind in (pa.date32(), TIMESTAMP_NTZ, TIMESTAMP):
        if fits(there, kind):
            return kind
    return pa.string()


def _all(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def columns_of_objects(rows: Sequence[dict[str, Any]]) -> Columns:
    """The columns of JSON objects."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    return {key: _of_values(seen) for key, seen in values.items()}


def _of_values(values: list[Any]) -> pa.DataType:
    texts = [value for value in values if isinstance(value, str)]
    if texts and all(value is None or isinstance(value, str) for value in values):
        return type_of_texts(pa.array(texts, pa.string()), numbers=False)
    return _widest(_of_value(value) for value in values)


def _of_value(value: Any) -> pa.DataType:
    if value is None or value == {}:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, list):
        return types.list_of(_widest(_of_value(one) for one in value))
    if isinstance(value, dict):
        return pa.struct([(key, _of_value(one)) for key, one in value.items()])
    return pa.string()


def _widest(kinds: Iterable[pa.DataType]) -> pa.DataType:
    widest = pa.null()
    for kind in kinds:
        widest = wider(widest, kind)
    return widest


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both; text if there is no other."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return types.list_of(wider(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in one}
        for f in other:
            fields[f.name] = wider(fields.get(f.name, pa.null()), f.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(min(38, whole + scale), scale)
    if {one, other} == {pa.date32(), TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    if _is_number(one) and _is_number(other):
        if pa.types.is_floating(one) or pa.types.is_floating(other):
            return pa.float64()
        return max(one, other, key=lambda kind: kind.bit_width)
    return pa.string()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def settled(kind: pa.DataType) -> pa.DataType:
    """A type that a column can have: text where no value was seen."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return types.map_of(settled(kind.key_type), settled(kind.item_type))
    if pa.types.is_list(kind):
        return types.list_of(settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(settled(f.type)) for f in kind])
    return kind


def merged_columns(files: Iterable[Columns]) -> Columns:
    """The columns of several files: each name once, whatever its case, with the widest type."""
    merged: Columns = {}
    spelled: dict[str, str] = {}
    for columns in files:
        for name, kind in columns.items():
            known = spelled.setdefault(name.casefold(), name)
            merged[known] = wider(merged.get(known, pa.null()), kind)
    return merged
