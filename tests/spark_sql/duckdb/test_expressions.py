"""Expressions are translated with Spark's types spelled out, or left to Spark."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tailrace import spark_sql
from tailrace.spark_sql.duckdb.expressions import translate
from tailrace.spark_sql.duckdb.translated import Translated
from tailrace.spark_sql.duckdb.type_rules import DiffersError
from tailrace.spark_sql.types import parse_type, spark_type

COLUMNS = {
    "i": "int", "j": "bigint", "d": "decimal(15,2)", "e": "decimal(9,4)", "x": "double",
    "s": "string", "t": "date", "b": "boolean",
}  # fmt: skip


def translated(text: str) -> Translated:
    def column(tree: exp.Column) -> Translated:
        return Translated(tree.copy(), parse_type(COLUMNS[tree.name]))

    return translate(spark_sql.parse_one(text), column)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "int"),
        ("3000000000", "bigint"),
        ("-2147483648", "int"),
        ("0.05", "decimal(2,2)"),
        ("i + j", "bigint"),
        ("i + 1", "int"),
        ("i / j", "double"),
        ("d * e", "decimal(25,6)"),
        ("d / e", "decimal(29,12)"),
        ("i + 0.5", "decimal(12,1)"),
        ("x + d", "double"),
        ("i = d", "boolean"),
        ("s || 'x'", "string"),
        ("length(s)", "int"),
        ("year(t)", "int"),
        ("CASE WHEN b THEN i ELSE j END", "bigint"),
        ("coalesce(i, 1.5)", "decimal(11,1)"),
        ("sum(i)", "bigint"),
        ("avg(d)", "decimal(19,6)"),
        ("count(*)", "bigint"),
        ("CAST(i AS decimal(12,2))", "decimal(12,2)"),
        ("DATE '1995-03-31' - INTERVAL '1' MONTH", "date"),
    ],
)
def test_results_have_sparks_types(text: str, kind: str) -> None:
    assert spark_type(translated(text).type) == kind


def test_days_are_computed_beforehand() -> None:
    tree = translated("DATE '1995-03-31' - INTERVAL '1' MONTH").tree
    assert tree.sql("duckdb") == "CAST('1995-02-28' AS DATE)"


@pytest.mark.parametrize(
    "text",
    [
        "upper(s)", "s > i", "round(d, 1)", "CAST(s AS int)", "CAST(d AS int)", "x % 2",
        "substring(s, -2, 1)", "sum(i) FILTER (WHERE b)", "s LIKE 'a\\_b'", "least(i)", "1e3",
        "t > '1995-3-1'", "b = i > 3", "rand()", "count(DISTINCT i, j)", "t + i",
    ],
)  # fmt: skip
def test_what_may_differ_is_left_to_spark(text: str) -> None:
    with pytest.raises(DiffersError):
        translated(text)
