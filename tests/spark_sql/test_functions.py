"""Functions that give something else each time: one list, compared with what Spark says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlglot

import tailrace
from tailrace.indexes.index_snapshot import is_deterministic
from tailrace.spark_sql.functions import MOMENT, NONDETERMINISTIC, SESSION, nondeterministic_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark calls without an argument, and gives the same for at any time. One that a new version
# of Spark adds has to be looked at before it is entered here.
STEADY = {
    "array", "array_except", "arrays_zip", "coalesce", "concat", "count", "create_map", "cume_dist",
    "dense_rank", "e", "grouping_id", "hash", "inline", "make_dt_interval", "make_interval",
    "make_ym_interval", "map", "map_concat", "map_from_arrays", "named_struct", "percent_rank",
    "pi", "rank", "row_number", "stack", "struct", "version", "xxhash64",
}  # fmt: skip


def _registered(spark: SparkSession) -> dict[str, Any]:
    registry: Any = spark._jsparkSession.sessionState().functionRegistry()
    names = registry.listFunction().iterator()
    found = {}
    while names.hasNext():
        name = names.next()
        found[name.funcName()] = registry.lookupFunction(name).get()
    return found


def test_what_spark_calls_non_deterministic_is_known(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    package = "org.apache.spark.sql.catalyst.expressions"
    marks = [
        jvm.java.lang.Class.forName(f"{package}.{name}", True, loader)
        for name in ("Nondeterministic", "ExpressionWithRandomSeed")
    ]
    found = set()
    for name, info in _registered(spark).items():
        kind = jvm.java.lang.Class.forName(info.getClassName(), True, loader)
        if any(mark.isAssignableFrom(kind) for mark in marks):
            found.add(name)
    assert len(found) > 10
    assert found <= NONDETERMINISTIC, found - NONDETERMINISTIC


@pytest.mark.stress
def test_what_needs_no_argument_is_known_to_be_steady_or_not(spark: SparkSession) -> None:
    """The time, the user and their like are functions of nothing."""
    from pyspark.errors import PySparkException

    callable_alone = set()
    for name in _registered(spark):
        if not name.isidentifier():
            continue
        try:
            spark.sql(f"SELECT {name}()").schema  # noqa: B018  (the analysis is asked for)
        except PySparkException:
            continue
        callable_alone.add(name)
    known = NONDETERMINISTIC | MOMENT | SESSION
    assert {"now", "current_user", "uuid", "unix_timestamp"} <= callable_alone
    assert callable_alone - known <= STEADY, callable_alone - known - STEADY


@pytest.mark.parametrize(
    "text",
    [
        "x < rand()", "uniform(1, 5) = 3", "randstr(3) = 'abc'", "t < now()",
        "t < localtimestamp()", "n < unix_timestamp()", "d = DATE 'today'",
        "d < CAST('tomorrow' AS DATE)",
        "t < TIMESTAMP 'now'", "u = current_user()", "d = curdate()", "s = aes_encrypt(s, k)",
    ],
)  # fmt: skip
def test_all_who_keep_results_refuse_the_same(text: str) -> None:
    assert list(nondeterministic_calls(sqlglot.parse_one(text, dialect="spark")))
    assert not is_deterministic(text)


@pytest.mark.parametrize(
    "text",
    ["unix_timestamp(t) > 5", "d = DATE '2026-01-01'", "s = 'now'", "date_trunc('day', t) = d"],
)
def test_functions_of_a_row_alone_are_steady(text: str) -> None:
    assert not list(nondeterministic_calls(sqlglot.parse_one(text, dialect="spark")))
    assert is_deterministic(text)


def test_a_replica_refuses_what_changes(sqlite_lake: tailrace.Lake) -> None:
    sqlite_lake.create_table("t", {"id": "int"}, primary_key="id")
    spec = {"consumer": {"kind": "replica", "table": "copy", "where": "id < uniform(1, 9)"}}
    with pytest.raises(tailrace.InvalidError, match="uniform"):
        sqlite_lake.jobs.register("t", "copy", spec)
