"""Literals of SQL as values of Python, and what is left to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tailrace import spark_sql
from tailrace.sql.literals import NotALiteralError, rows_of, value_of

ARGS = {"name": "ada", "none": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NULL", None),
        ("true", True),
        ("17", 17),
        ("-17", -17),
        ("(-(17))", -17),
        ("1.50", Decimal("1.50")),
        ("1e3", 1000.0),
        ("-2.5e-1", -0.25),
        ("'a b'", "a b"),
        ("array(1, 2.5, NULL)", [1, Decimal("2.5"), None]),
        ("DATE '2026-01-31'", date(2026, 1, 31)),
        ("TIMESTAMP '2026-01-31 12:00:00Z'", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (":name", "ada"),
        (":none", None),
    ],
)
def test_a_literal_is_a_value(text: str, value: Any) -> None:
    found = value_of(spark_sql.parse_one(text), ARGS)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1",
        "id",
        "upper('a')",
        "-true",
        "- 'a'",
        ":unknown",
        "CAST(1 AS date)",
        "DATE '2026-02-30'",
        "TIMESTAMP '2026-01-31 12:00:00'",  # in which zone, only the session knows
        "1e999",
        "INTERVAL '1' DAY",
    ],
)
def test_what_has_to_be_computed_is_no_literal(text: str) -> None:
    with pytest.raises(NotALiteralError):
        value_of(spark_sql.parse_one(text), ARGS)


def test_rows_of_values() -> None:
    assert rows_of(spark_sql.parse_one("VALUES (1, 'a'), (:name, NULL)"), ARGS) == [
        [1, "a"],
        ["ada", None],
    ]
    assert rows_of(spark_sql.parse_one("VALUES 1, 2"), ARGS) == [[1], [2]]


@pytest.mark.parametrize("text", ["SELECT 1", "VALUES (1) LIMIT 1", "VALUES (1), (1 + 1)"])
def test_other_queries_are_left_to_spark(text: str) -> None:
    with pytest.raises(NotALiteralError):
        rows_of(spark_sql.parse_one(text), ARGS)
