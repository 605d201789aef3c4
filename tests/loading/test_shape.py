"""A look at a file tells its columns, their types, and whether it can be cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError
from tailrace.loading.options import Options
from tailrace.loading.shape import (
    SAMPLE_BYTES,
    Shape,
    columns_of_objects,
    look_at,
    merged_columns,
    sample_bytes,
    settled,
    type_of_texts,
    wider,
)
from tailrace.spark_sql import types
from tailrace.spark_sql.types import spark_type
from tests.support.loading import a_file


def look(
    path: Path, data: bytes, options: Options | None = None, names: tuple[str, ...] | None = None
) -> Shape:
    path.write_bytes(data)
    file = replace(a_file(path.name, size=len(data)), location=str(path))
    return look_at(file, options or Options(), size=1000, names=names)


def test_csv_names_its_columns_or_takes_the_names_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert look(path, b"id,x\n1,a\n").columns == {"id": pa.int64(), "x": pa.string()}
    bare = Options(header=False)
    assert look(path, b"1,\n", bare, ("id", "x")).columns == {"id": pa.int64(), "x": pa.null()}
    with pytest.raises(InvalidError, match=r"2 fields in its first line.*names are known: id;"):
        look(path, b"1,2\n", bare, ("id",))


def test_a_file_with_line_ends_inside_quotes_is_not_cut(tmp_path: Path) -> None:
    assert look(tmp_path / "a.csv", b"id\n1\n").divisible
    assert not look(tmp_path / "a.csv", b'id\n"1\n2"\n').divisible
    assert look(tmp_path / "a.jsonl", b'{"id": 1}\n').divisible


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,ID\n", "two columns called 'ID'"),
        (b"id, \n", "column 2 has no name"),
        (b"caf\xe9\n", "is not UTF-8"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        look(tmp_path / "a.csv", data)


def test_json_has_the_keys_of_its_rows_as_first_spelled(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = b'{"Id": 1}\n[1]\n{"id": "x", "y": 1.5}\n'
    assert look(path, data).columns == {"Id": pa.int64(), "y": pa.float64()}
    with pytest.raises(InvalidError, match="is one JSON array"):
        look(path, b'\n [{"id": 1}]')


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    assert look(tmp_path / "a.csv", b"\n").columns == {}


def test_many_files_are_looked_at_less() -> None:
    assert sample_bytes(1) == SAMPLE_BYTES
    assert sample_bytes(1000) < sample_bytes(100) < SAMPLE_BYTES
    assert sample_bytes(10**9) > 0


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", " -7 ", None], "bigint"),
        (["1", "2.5", ".5", "1e3", "NaN", "-inf"], "double"),
        (["true", "FALSE"], "boolean"),
        (["1", "true"], "string"),
        (["007"], "string"),
        (["+49"], "string"),
        (["9223372036854775807"], "bigint"),
        (["9223372036854775808"], "string"),
        (["9223372036854775808", "1.5"], "string"),
        (["1e400"], "string"),
        (["2024-01-31"], "date"),
        (["2024-02-30"], "string"),
        (["2024-01-31", "2024-01-31 10:00"], "timestamp_ntz"),
        (["2024-01-31T10:00Z", "2024-01-31 10:00:00+02:00"], "timestamp"),
        (["2024-01-31T10:00Z", "2024-01-31 10:00"], "string"),
        (["", " "], "string"),
        (["a", None], "string"),
    ],
)
def test_texts_have_the_narrowest_type_that_loses_nothing(
    texts: list[str | None], kind: str
) -> None:
    assert spark_type(type_of_texts(pa.array(texts, pa.string()))) == kind


def test_a_column_without_a_value_has_no_type_yet_and_becomes_text() -> None:
    unknown = type_of_texts(pa.array([None, None], pa.string()))
    assert unknown == pa.null()
    assert settled(unknown) == pa.string()
    nested = pa.struct(
        [("a", types.list_of(pa.null())), ("b", types.map_of(pa.string(), pa.null()))]
    )
    assert spark_type(settled(nested)) == "struct<`a`:array<string>,`b`:map<string,string>>"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], "bigint"),
        ([1, 2.5], "double"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["7", "8"], "string"),  # a text is never taken for a number
        (["2024-01-31"], "date"),
        (["2024-01-31", 1], "string"),
        ([[1], [2.5, None]], "array<double>"),
        ([{"a": 1}, {"b": "x"}, {}], "struct<`a`:bigint,`b`:string>"),
        ([{"a": 1}, {"a": "x"}], "struct<`a`:string>"),
        ([{"a": 1}, [1]], "string"),
    ],
)
def test_json_values_have_the_type_that_fits_them_all(values: list[Any], kind: str) -> None:
    columns = columns_of_objects([{"v": value} for value in values])
    assert spark_type(columns["v"]) == kind


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("bigint", "double", "double"),
        ("tinyint", "int", "int"),
        ("float", "float", "float"),
        ("float", "bigint", "double"),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("timestamp", "timestamp_ntz", "string"),
        ("date", "bigint", "string"),
        ("decimal(5,2)", "decimal(6,1)", "decimal(7,2)"),
        ("decimal(38,0)", "decimal(10,5)", "decimal(38,5)"),
        ("array<int>", "array<double>", "array<double>"),
        ("struct<a:int>", "struct<b:date>", "struct<`a`:int,`b`:date>"),
    ],
)
def test_types_widen_the_same_in_either_order(one: str, other: str, both: str) -> None:
    left, right = types.parse_type(one), types.parse_type(other)
    assert spark_type(wider(left, right)) == both
    if "struct" not in one:  # whose fields keep the order in which they came
        assert spark_type(wider(right, left)) == both
    assert wider(left, pa.null()) == wider(pa.null(), left) == left


def test_files_are_merged_by_names_whatever_their_case() -> None:
    first, second = {"Id": pa.int64(), "x": pa.null()}, {"x": pa.date32(), "ID": pa.float64()}
    assert merged_columns([first, second]) == {"Id": pa.float64(), "x": pa.date32()}
