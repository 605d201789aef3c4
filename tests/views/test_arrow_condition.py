"""Conditions that are checked while rows are read: none that a row wrongly fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from tailrace.views.refresh.needed_rows import arrow_condition

ROWS = pa.table(
    {
        "i": pa.array([1, 2, 3, None, -4], pa.int32()),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.00"), Decimal("-3.25"), Decimal(0)],
                      pa.decimal128(10, 2)),
        "s": pa.array(["forest green", "x", None, "special requests", "%"]),
        "t": pa.array([dt.date(1994, 1, 1), dt.date(1994, 12, 31), dt.date(1995, 1, 1), None,
                       dt.date(1992, 2, 29)], pa.date32()),
    }
)  # fmt: skip
EXACT = [
    "i > 1",
    "2 <= i",
    "i <> 2",
    "i = -4",
    "i IN (1, 3)",
    "i BETWEEN 1 AND 2",
    "d > 1.5",
    "d <= 0",
    "s = 'x'",
    "s LIKE 'forest%'",
    "s NOT LIKE '%special%requests%'",
    "s LIKE '%'",
    "t >= DATE '1994-01-01' AND t < DATE '1994-01-01' + INTERVAL '1' YEAR",
    "t < DATE '1995-03-31' - INTERVAL '1' MONTH",
    "t = DATE '1992-02-28' + INTERVAL '1' DAY",
    "i > 1 AND (s = 'x' OR d = 2)",
]
# What Arrow might read otherwise than Spark is left out.
LEFT_OUT = [
    "i > 1.5",
    "s > 1",
    "NOT i IN (1, 2)",
    "i NOT BETWEEN 1 AND 2",
    "abs(i) = 4",
    "t > '1994-06-01'",
]


@pytest.mark.parametrize("condition", EXACT)
def test_known_conditions_are_checked(condition: str) -> None:
    made = arrow_condition(sqlglot.parse_one(condition, dialect="spark"), ROWS.schema)
    assert made is not None
    got = ROWS.filter(made).column("i").to_pylist()
    query = sqlglot.parse_one(f"SELECT i FROM rows WHERE {condition}", dialect="spark")
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        want = [row[0] for row in connection.execute(query.sql("duckdb")).fetchall()]
    assert got == want


@pytest.mark.parametrize("condition", LEFT_OUT)
def test_other_conditions_are_left_out(condition: str) -> None:
    assert arrow_condition(sqlglot.parse_one(condition, dialect="spark"), ROWS.schema) is None
