"""Lines of JSON are read as the table's types, and bad ones among many are found."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tailrace.loading.json_rows import JsonField, json_type, read_json
from tailrace.loading.rows import Block
from tailrace.loading.text import TextRange
from tailrace.spark_sql.types import parse_type, spark_type


def read(lines: list[str], **kinds: str) -> Block:
    data = "".join(f"{line}\n" for line in lines).encode()
    text = TextRange(pa.BufferReader(data), name="a.jsonl", dialect=None)
    fields = [
        JsonField(key=name, column=name, type=parse_type(kind)) for name, kind in kinds.items()
    ]
    (block,) = read_json(text, fields=fields, part=0)
    return block


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [
        ("tinyint", "bigint"),
        ("float", "double"),
        ("decimal(5,2)", "decimal(5,2)"),
        ("date", "string"),
        ("timestamp", "string"),
        ("array<int>", "array<int>"),
        ("struct<a:timestamp>", "struct<`a`:timestamp>"),
        ("binary", None),
        ("map<string,int>", None),
        ("array<date>", None),
    ],
)
def test_values_are_read_in_the_widest_type(kind: str, read_as: str | None) -> None:
    found = json_type(parse_type(kind))
    assert (None if found is None else spark_type(found)) == read_as


def test_a_missing_key_is_null() -> None:
    block = read(['{"a": 1}', "", ' {"b": "x"} '], a="bigint", b="string")
    assert block.rows.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    assert block.lines.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("line", "column", "value", "reason"),
    [
        ('{"a": "4"}', "a", '"4"', '"4" is not a valid bigint'),
        ('{"a": true}', "a", "true", "true is not a valid bigint"),
        ('{"b": 1}', "b", "1", "1 is not a valid string"),
        ('{"c": [1]}', "c", "[1]", "[1] is not a valid struct<`x`:bigint>"),
        ('{"bb": 1}', "bb", None, "the table has no such column; did you mean 'b'?"),
        ("[1]", None, None, "it is not one JSON object"),
        ("null", None, None, "it is not one JSON object"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(
    line: str, column: str | None, value: Any, reason: str
) -> None:
    block = read(['{"a": 1}', line, '{"a": 2}'], a="bigint", b="string", c="struct<x:bigint>")
    assert block.rows.column("a").to_pylist() == [1, 2]
    (broken,) = block.broken
    assert (broken.line, broken.column, broken.value, broken.reason, broken.text) == (
        1, column, value, reason, line,
    )  # fmt: skip


@pytest.mark.parametrize("line", ['{"a": 1', '{"a": 1}{"a": 2}', '{"a": 1, "a": 2}', "{"])
def test_a_line_that_is_no_object_is_rejected_alone(line: str) -> None:
    block = read(['{"a": 1}', line, '{"a": 2}'], a="bigint")
    assert block.rows.column("a").to_pylist() == [1, 2]
    assert [broken.line for broken in block.broken] == [1]


def test_few_bad_lines_among_many_cost_no_other_line() -> None:
    lines = [json.dumps({"a": number}) for number in range(5000)]
    bad = {7, 2500, 2501, 4999}
    for number in bad:
        lines[number] = '{"a": "x"}'
    block = read(lines, a="bigint")
    good = [number for number in range(5000) if number not in bad]
    rows = zip(block.lines.tolist(), block.rows.column("a").to_pylist(), strict=True)
    assert sorted(rows) == [(number, number) for number in good]
    assert {broken.line for broken in block.broken} == bad
    assert all(block.text(n) == lines[int(block.lines[n])] for n in range(0, len(good), 500))
