"""A file's columns are matched with the table's; values are converted a column at a time, and
refused one by one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.errors import InvalidError
from tailrace.loading.convert import Layout, from_text, lay_out, sift
from tailrace.loading.options import OnError, Options
from tailrace.loading.rows import Block, Fitted
from tailrace.spark_sql.types import TIMESTAMP, parse_type
from tests.support.loading import a_file, a_table


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int", ["1", " -2 ", "007"], ["1.0", "0x1F", "1e1", "2147483648", "", "1_000"]),
        ("double", ["1", "1e3", "inf", "NaN"], ["1e400", "1,5", "x"]),
        ("decimal(4,1)", ["1.5", "-100"], ["1.55", "1000", "x"]),
        ("boolean", ["true", "FALSE", "0", "1"], ["yes", "2"]),
        ("date", ["2024-02-29"], ["2023-02-29", "2024-2-1", "20240201", "2024-02-29 1"]),
        ("timestamp_ntz", ["2024-01-01", "2024-01-01T10:00:00.5"], ["2024-01-01T10:00Z"]),
        ("timestamp", ["2024-01-01 10:00+02"], ["2024-01-01 10:00"]),
    ],
)
def test_a_type_takes_its_own_texts_and_no_others(
    kind: str, good: list[str], bad: list[str]
) -> None:
    # In between, so that each value is judged by itself.
    texts = [text for pair in zip(good * len(bad), bad * len(good), strict=True) for text in pair]
    values, failed = from_text(pa.array(texts), parse_type(kind), None)
    empty = [not text for text in texts]  # nothing is NULL, whatever the type
    refused = [text in bad and bool(text) for text in texts]
    assert failed.tolist() == refused
    assert values.is_valid().to_pylist() == [
        not (wrong or nothing) for wrong, nothing in zip(refused, empty, strict=True)
    ]


def test_times_without_a_zone_are_in_the_zone_that_is_given() -> None:
    texts = pa.array(["2024-07-01 12:00", "2024-07-01 12:00Z", None, "2024-03-31 02:30"])
    values, failed = from_text(texts, TIMESTAMP, "Europe/Berlin")
    assert values.to_pylist()[:3] == [
        datetime(2024, 7, 1, 10, tzinfo=UTC),
        datetime(2024, 7, 1, 12, tzinfo=UTC),
        None,
    ]
    assert failed.tolist() == [False, False, False, True]  # an hour that Berlin left out


def test_a_column_is_halved_only_around_what_is_refused() -> None:
    calls: list[int] = []

    def strict(values: pa.Array) -> pa.Array:
        calls.append(len(values))
        if 13 in values.to_pylist():
            raise pa.ArrowInvalid
        return values

    values, failed = sift(pa.array(range(64)), strict, pa.int64())
    assert np.flatnonzero(failed).tolist() == [13]
    assert values.null_count == 1
    assert len(calls) == 13  # two for each halving


def fit(rows: dict[str, list[Any]], sources: tuple[int | None, ...], **kinds: str) -> Fitted:
    table = a_table(required=("id",), **kinds)
    given = pa.table(rows)
    filled = Layout(table="main.t", columns=table.columns, sources=sources)
    lines = np.arange(10, 10 + given.num_rows)
    return filled.fit(Block(rows=given, lines=lines, text=lambda row: f"row {row}"), 3)


def test_columns_fill_those_of_the_table_and_others_are_null() -> None:
    fitted = fit(
        {"a": ["x", "y"], "b": ["1", "2"]}, (1, None, 0), id="int", d="date", name="string"
    )
    assert fitted.rows.to_pylist() == [
        {"id": 1, "d": None, "name": "x"},
        {"id": 2, "d": None, "name": "y"},
    ]
    assert fitted.misfits == []


def test_a_row_is_rejected_once_with_its_line_and_text() -> None:
    rows = {"a": ["1", "x", "", "4"], "b": ["1.5", "y", "2", "z"]}
    fitted = fit(rows, (0, 1), id="int", amount="double")
    assert fitted.rows.to_pylist() == [{"id": 1, "amount": 1.5}]
    assert fitted.lines.tolist() == [10]
    assert [(m.part, m.line, m.column, m.value, m.reason, m.text) for m in fitted.misfits] == [
        (3, 11, "id", "x", "'x' is not a valid int", "row 1"),
        (3, 12, "id", "", "it must not be NULL", "row 2"),
        (3, 13, "amount", "z", "'z' is not a valid double", "row 3"),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "advice"),
    [
        (
            "timestamp",
            "2024-01-01 10:00",
            "it names no time zone; give the load one",
        ),
        ("timestamp_ntz", "2024-01-01 10:00Z", "it names a time zone"),
    ],
)
def test_what_is_wrong_with_a_time_is_said(kind: str, value: str, advice: str) -> None:
    fitted = fit({"a": ["1"], "b": [value]}, (0, 1), id="int", at=kind)
    assert fitted.misfits[0].reason == f"{value!r} is not a valid {kind}: {advice}"


def test_typed_values_are_checked_against_the_range_of_the_column() -> None:
    fitted = fit({"a": [1, 300, None], "b": [1.0, 2.0, 3.0]}, (0, 1), id="tinyint", f="float")
    assert fitted.rows.to_pylist() == [{"id": 1, "f": 1.0}]
    assert [m.reason for m in fitted.misfits] == [
        "'300' is not a valid tinyint",
        "it must not be NULL",
    ]


TABLE = a_table(id="bigint", name="string", tags="array<string>", required=("id",))


def layout(file: str, options: Options | None = None, **columns: pa.DataType) -> Layout:
    return lay_out(a_file(file), columns, TABLE, options or Options())


def test_columns_match_by_name_whatever_the_case_and_order() -> None:
    found = layout("a.csv", NAME=pa.string(), Id=pa.int64())
    assert found.sources == (1, 0, None)
    assert found.width == 2
    assert found.dialect is not None


def test_json_looks_for_every_column_as_the_file_spells_it() -> None:
    found = layout("a.jsonl", Name=pa.string())
    assert [(field.key, field.column) for field in found.json] == [
        ("id", "id"),
        ("Name", "name"),
        ("tags", "tags"),
    ]
    assert found.sources == (0, 1, 2)


def test_an_unknown_key_of_json_rejects_its_rows_unless_the_load_aborts() -> None:
    with pytest.raises(InvalidError, match=r"which main\.t does not have; did you mean 'name'"):
        layout("a.jsonl", nmae=pa.string())
    assert layout("a.jsonl", Options(on_error=OnError.SKIP), nmae=pa.string()).json


def test_a_file_without_columns_is_empty_and_fine() -> None:
    assert layout("a.csv").sources == (None, None, None)


@pytest.mark.parametrize(
    ("file", "columns", "message"),
    [
        ("a.csv", {"id": pa.int64(), "zzz": pa.null()}, "does not have; it has id, name, tags"),
        ("a.csv", {"name": pa.string()}, "no column 'id', which must not be NULL"),
        ("a.csv", {"id": pa.int64(), "tags": pa.string()}, "can't be read from CSV; use Parquet"),
        ("a.parquet", {"id": pa.string()}, "column 'id' is string, but main.t.id is bigint"),
    ],
)
def test_what_cannot_be_filled_is_refused_by_name(
    file: str, columns: dict[str, pa.DataType], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        layout(file, **columns)
