"""Types of results, as Spark's documentation of decimals and of common types has them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.type_rules import DiffersError
from tailrace.spark_sql.types import list_of, parse_type


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def test_decimal_arithmetic() -> None:
    a, b = decimal(15, 2), decimal(9, 4)
    assert type_rules.sum_of_two(a, b) == decimal(18, 4)
    assert type_rules.product(a, b) == decimal(25, 6)
    assert type_rules.quotient(a, b) == decimal(29, 12)


def test_what_has_too_many_digits_loses_places_but_keeps_six() -> None:
    wide = decimal(38, 10)
    assert type_rules.product(wide, wide) == decimal(38, 6)
    assert type_rules.sum_of_two(wide, wide) == decimal(38, 9)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.05", decimal(2, 2)),
        ("12.50", decimal(4, 2)),
        ("007", decimal(1, 0)),
        ("-1.5", decimal(2, 1)),
    ],
)
def test_a_literal_has_just_its_digits(text: str, kind: pa.DataType) -> None:
    assert type_rules.literal_decimal(text) == kind


def test_a_literal_of_too_many_digits_differs() -> None:
    with pytest.raises(DiffersError, match="39 digits"):
        type_rules.literal_decimal("1" * 39)


@pytest.mark.parametrize(
    ("kind", "total", "average"),
    [
        ("int", "bigint", "double"),
        ("decimal(15,2)", "decimal(25,2)", "decimal(19,6)"),
        ("decimal(38,2)", "decimal(38,2)", "decimal(38,6)"),
        ("float", "double", "double"),
    ],
)
def test_aggregates(kind: str, total: str, average: str) -> None:
    assert type_rules.total(parse_type(kind)) == parse_type(total)
    assert type_rules.average(parse_type(kind)) == parse_type(average)


@pytest.mark.parametrize(
    ("kinds", "common"),
    [
        (["int", "bigint"], "bigint"),
        (["tinyint", "decimal(5,2)"], "decimal(5,2)"),
        (["bigint", "decimal(5,2)"], "decimal(22,2)"),
        (["decimal(9,4)", "double"], "double"),
        (["string", "string"], "string"),
    ],
)
def test_branches_are_brought_to_one_type(kinds: list[str], common: str) -> None:
    assert type_rules.common(map(parse_type, kinds)) == parse_type(common)


def test_nothing_but_nulls_stays_null() -> None:
    assert type_rules.common([pa.null(), pa.null()]) == pa.null()


@pytest.mark.parametrize("kinds", [["string", "int"], ["date", "timestamp"], ["float", "int"]])
def test_types_that_spark_mixes_by_its_settings_differ(kinds: list[str]) -> None:
    with pytest.raises(DiffersError, match="beside"):
        type_rules.common(map(parse_type, kinds))


def test_types_that_duckdb_is_not_asked_about() -> None:
    with pytest.raises(DiffersError, match="values of type"):
        type_rules.check(list_of(pa.int32()))
