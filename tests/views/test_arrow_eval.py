"""Simple queries over Arrow tables: what they give contains what the query gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from tailrace.views.arrow_eval import evaluate

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


def asked(condition: str) -> tuple[set[object], set[object]]:
    query = sqlglot.parse_one(
        f"SELECT DISTINCT i AS k FROM rows WHERE {condition}", dialect="spark"
    )
    found = evaluate(query, {"rows": ROWS})
    assert found is not None
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        want = {row[0] for row in connection.execute(query.sql("duckdb")).fetchall()}
    return set(found.column("k").to_pylist()), want


@pytest.mark.parametrize("condition", EXACT)
def test_known_conditions_are_checked(condition: str) -> None:
    got, want = asked(condition)
    assert got == want


@pytest.mark.parametrize("condition", LEFT_OUT)
def test_other_conditions_are_left_out(condition: str) -> None:
    query = sqlglot.parse_one(f"SELECT i FROM rows WHERE {condition}", dialect="spark")
    found = evaluate(query, {"rows": ROWS})
    assert found is not None
    assert found.num_rows == ROWS.num_rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i + 1 AS k FROM rows",
        "SELECT i FROM rows GROUP BY i",
        "SELECT a.i FROM rows a JOIN rows b ON a.i = b.i",
        "SELECT i FROM rows LIMIT 1",
        "SELECT i FROM elsewhere",
        "SELECT i FROM rows UNION SELECT i FROM rows",
    ],
)
def test_what_is_not_simple_is_left_to_spark(query: str) -> None:
    assert evaluate(sqlglot.parse_one(query, dialect="spark"), {"rows": ROWS}) is None
