"""Rows of JSON: an object on each line, read with the types of the table's columns.

Arrow reads a whole block, and refuses all of it for a single bad line. Such a block is halved
until it is small enough to check line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from tailrace.loading.rows import Block, Lines, Misfit, nearest, shown
from tailrace.loading.text import Records, TextRange, misfit, readable
from tailrace.spark_sql import types

_LOOKED_AT = 1024  # lines that are checked one by one
_OPENING = ord("{")
_NO_OBJECT = "it is not one JSON object"


@dataclass(frozen=True, kw_only=True)
class JsonField:
    """A column of the table, and the key of its values in JSON."""

    key: str  # as the file spells it
    column: str
    type: pa.DataType  # the column's


def json_type(kind: pa.DataType, *, inside: bool = False) -> pa.DataType | None:
    """The type in which Arrow reads a column's values; None if JSON can't hold them.

    Numbers are read in the widest type, dates and times as text: `convert` then finds the rows
    that do not fit.
    """
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_decimal(kind):
        return kind
    if pa.types.is_integer(kind):
        return kind if inside else pa.int64()
    if pa.types.is_floating(kind):
        return kind if inside else pa.float64()
    if pa.types.is_timestamp(kind):
        return kind if inside else pa.string()
    if pa.types.is_date(kind):
        return None if inside else pa.string()
    if pa.types.is_map(kind) or types.is_atomic(kind):
        return None
    inner = [json_type(child.type, inside=True) for child in types.children_of(kind)]
    if any(part is None for part in inner):
        return None
    if pa.types.is_list(kind):
        return types.list_of(inner[0])
    return pa.struct([f.with_type(part) for f, part in zip(kind, inner, strict=True)])


def read_json(text: TextRange, *, fields: Sequence[JsonField], part: int) -> Iterator[Block]:
    """The rows of a range of a file, in columns named as in the file."""
    reader = _Reader(fields, part)
    for every in text:
        records, broken = readable(every, part)
        if len(records.starts) or broken:
            yield reader.read(records, broken)


class _Reader:
    def __init__(self, fields: Sequence[JsonField], part: int) -> None:
        self._fields = {field.key: field for field in fields}
        self._part = part
        self._schema = pa.schema([(field.key, json_type(field.type)) for field in fields])

    def read(self, records: Records, broken: list[Misfit]) -> Block:
        """The rows of whole records; adds the others to `broken`."""
        tables, numbers_read = [self._schema.empty_table()], [np.zeros(0, np.int64)]
        waiting = [np.arange(len(records.starts))]
        while waiting:
            numbers = waiting.pop()
            rows, why = self._parse(records, numbers)
            if rows is not None:
                tables.append(rows)
                numbers_read.append(numbers)
            elif len(numbers) <= _LOOKED_AT and (bad := self._look(records, numbers, broken)):
                waiting.append(np.setdiff1d(numbers, bad, assume_unique=True))
            elif len(numbers) == 1:
                broken.append(misfit(records, int(numbers[0]), self._part, why))
            else:
                middle = len(numbers) // 2
                waiting += [numbers[middle:], numbers[:middle]]
        order = np.concatenate(numbers_read)
        return Block(
            rows=pa.concat_tables(tables),
            lines=records.lines[order],
            text=lambda row: records.text(order[row]),
            broken=broken,
        )

    def _parse(self, records: Records, numbers: Lines) -> tuple[pa.Table | None, str]:
        """Some records as Arrow reads them; None and the reason if it can't read them all."""
        if not len(numbers):
            return self._schema.empty_table(), ""
        if not _are_objects(records, numbers):
            return None, _NO_OBJECT
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            data = records.data[records.starts[numbers[0]] : records.ends[numbers[-1]]]
        else:
            spans = zip(records.starts[numbers], records.ends[numbers], strict=True)
            data = b"\n".join(records.data[start:end] for start, end in spans)
        try:
            rows = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            return None, shown(str(error).removesuffix(" in row 0"))
        return (rows, "") if rows.num_rows == len(numbers) else (None, _NO_OBJECT)

    def _look(self, records: Records, numbers: Lines, broken: list[Misfit]) -> list[int]:
        """The records in which Python finds a fault."""
        bad = []
        for number in map(int, numbers):
            fault = self._why(records.data[records.starts[number] : records.ends[number]])
            if fault is not None:
                bad.append(number)
                broken.append(replace(misfit(records, number, self._part, ""), **fault))
        return bad

    def _why(self, line: bytes) -> dict[str, Any] | None:
        """What is wrong with a line, as fields of `Misfit`."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"reason": f"it is not JSON: {error}"}
        if not isinstance(row, dict):
            return {"reason": _NO_OBJECT}
        for key, value in row.items():
            field = self._fields.get(key)
            if field is None:
                near = nearest(key, self._fields)
                return {"column": key, "reason": f"the table has no such column{near}"}
            if value is not None and not _may_be(value, field.type):
                text = shown(json.dumps(value, ensure_ascii=False))
                kind = types.spark_type(field.type)
                return {
                    "column": field.column,
                    "value": text,
                    "reason": f"{text} is not a valid {kind}",
                }
        return None


def _are_objects(records: Records, numbers: Lines) -> bool:
    first = np.frombuffer(records.data, np.uint8)[records.starts[numbers]]
    return all(
        records.data[records.starts[number] : records.ends[number]].lstrip()[:1] == b"{"
        for number in numbers[first != _OPENING]
    )


def _may_be(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow might read a value as this type; False is certain, True is not."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(value, int):
        if pa.types.is_integer(kind):
            return -(2**63) <= value < 2**63
        return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if isinstance(value, float):
        return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if isinstance(value, list):
        return bool(pa.types.is_list(kind))
    if isinstance(value, dict):
        return bool(pa.types.is_struct(kind))
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(types.is_atomic(kind) and not numeric and not pa.types.is_boolean(kind))
