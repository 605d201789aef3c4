"""Types whose values can be compared without one of them becoming another."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tailrace.views.query.common_type import common_type

COMMON = [
    ("int", "int", "int"),
    ("tinyint", "bigint", "bigint"),
    ("float", "double", "double"),
    ("date", "timestamp", "timestamp"),
    ("varchar(10)", "string", "string"),
    ("null", "date", "date"),
    ("int", "decimal(12, 2)", "decimal(12, 2)"),
    ("bigint", "decimal(12, 2)", "decimal(22, 2)"),
    ("decimal(10, 4)", "decimal(12, 2)", "decimal(14, 4)"),
    ("decimal(38, 18)", "bigint", "decimal(38, 18)"),
    ("array<int>", "array<int>", "array<int>"),
]
# By Spark's conversion, two values of one would be equal to the same of the other.
NONE = [
    ("string", "int"),
    ("string", "date"),
    ("bigint", "double"),
    ("int", "float"),
    ("decimal(10, 2)", "double"),
    ("timestamp", "timestamp_ntz"),
    ("decimal(38, 38)", "bigint"),
    ("array<int>", "array<string>"),
    ("struct<a: int>", "struct<a: bigint>"),
]


def _type(text: str) -> exp.DataType:
    return exp.DataType.build(text, dialect="spark")


@pytest.mark.parametrize(("one", "other", "common"), COMMON)
def test_the_wider_type_holds_both(one: str, other: str, common: str) -> None:
    for pair in ((one, other), (other, one)):
        assert common_type(*map(_type, pair)) == _type(common)


@pytest.mark.parametrize(("one", "other"), NONE)
def test_types_of_different_kinds_have_no_common_one(one: str, other: str) -> None:
    assert common_type(_type(one), _type(other)) is None
    assert common_type(_type(other), _type(one)) is None


def test_what_is_not_known_has_no_common_type() -> None:
    assert common_type(None, _type("int")) is None
    assert common_type(exp.DataType.build("unknown"), exp.DataType.build("unknown")) is None
