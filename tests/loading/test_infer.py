"""Types are inferred only where nothing of the sample is lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.loading import infer
from tailrace.spark_sql import types
from tailrace.spark_sql.types import spark_type


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
    assert spark_type(infer.of_texts(pa.array(texts, pa.string()))) == kind


def test_a_column_without_a_value_has_no_type_yet_and_becomes_text() -> None:
    unknown = infer.of_texts(pa.array([None, None], pa.string()))
    assert unknown == pa.null()
    assert infer.settled(unknown) == pa.string()
    nested = pa.struct(
        [("a", types.list_of(pa.null())), ("b", types.map_of(pa.string(), pa.null()))]
    )
    assert spark_type(infer.settled(nested)) == "struct<`a`:array<string>,`b`:map<string,string>>"


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
    columns = infer.of_objects([{"v": value} for value in values])
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
    assert spark_type(infer.wider(left, right)) == both
    if "struct" not in one:  # whose fields keep the order in which they came
        assert spark_type(infer.wider(right, left)) == both
    assert infer.wider(left, pa.null()) == infer.wider(pa.null(), left) == left


def test_files_are_merged_by_names_whatever_their_case() -> None:
    first, second = {"Id": pa.int64(), "x": pa.null()}, {"x": pa.date32(), "ID": pa.float64()}
    assert infer.merged([first, second]) == {"Id": pa.float64(), "x": pa.date32()}
