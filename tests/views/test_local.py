"""Queries over rows in memory: Spark's values and types, or none at all."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb.engine import execute, without_shared_plans
from tailrace.spark_sql.duckdb.type_rules import DiffersError
from tailrace.views.refresh.compile import local_query
from tests.support import counted
from tests.support.seeds import seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 1_000_000


def _money(*values: str | None) -> list[Decimal | None]:
    return [None if value is None else Decimal(value) for value in values]


ROWS = pa.table(
    {
        "g": pa.array(["x", "x", None, "y", None, "x", "y"]),
        "i": pa.array([1, -7, 2_000_000_000, None, 0, 3, -2_000_000_000], pa.int32()),
        "j": pa.array([3, 5, 4_000_000_000, 7, None, -3, 1], pa.int64()),
        "h": pa.array([1, 2, None, -128, 127, 0, 5], pa.int8()),
        "d": pa.array(_money("1.50", None, "-2.05", "9999999999999.99", "0.00", "-0.01", "33.33"),
                      pa.decimal128(15, 2)),
        "e": pa.array(_money("0.1250", "7.0000", None, "-3.5000", "0.0001", "12.3456", "2.5000"),
                      pa.decimal128(9, 4)),
        "w": pa.array(_money("1.123456789", "-8.500000005", "77.0", None, "1e-9", "2.5", "-4"),
                      pa.decimal128(38, 9)),
        "s": pa.array(["forest green", "", None, "héllo wörld", "日本語", "100%_\\x", "a\nb"]),
        "t": pa.array([dt.date(1994, 1, 31), None, dt.date(1992, 2, 29), dt.date(1969, 12, 31),
                       dt.date(2024, 12, 31), dt.date(1600, 3, 1), dt.date(1994, 1, 31)]),
        "x": pa.array([0.5, -0.0, math.nan, math.inf, None, -1.25, 0.0]),
        "b": pa.array([True, None, False, True, False, None, True]),
    }
)  # fmt: skip

VALUES = [
    "1", "-1", "3000000000", "0.05", "-12.50", "true", "DATE '1995-03-15'",
    "DATE '1995-03-31' - INTERVAL '1' MONTH", "DATE '1992-02-29' + INTERVAL 1 YEAR", "h + 1",
    "-2147483648", "j - i", "j * 2", "-(j)", "j % 4", "-7 % 3", "e + 1", "1 - e", "e * 3",
    "e * -3", "d * e", "d + j", "e - d", "w * e", "d * (1 - e) * (1 + e)", "i + 0.5", "j * 0.001",
    "w + d", "w * d", "e * e * e * e * e", "x + 1", "x * e", "d - x", "j / 4", "e / 7", "d / 3.0",
    "e / 0.3", "100.00 * e / 7", "w / 3", "d / 1000000007", "j / e", "x / 2",
    "d / (e * 2 + 100.5)", "1 / 3", "2 / 3.0", "i = 3", "i <> j", "d > 1.5", "d <= i", "e >= 0.1",
    "w < d", "i <=> NULL", "j <=> i", "x = 0.0", "x > 1", "x = x", "x < x + 1", "s = ''",
    "s < 'g'", "t > DATE '1992-02-28'", "t >= '1994-01-31'", "b = true", "b AND i > 0",
    "b OR i > 0", "NOT b", "NOT (i > 0 AND b)", "i IS NULL", "x IS NOT NULL", "i IN (1, 3, NULL)",
    "e IN (7, 0.125)", "s NOT IN ('', 'x')", "d BETWEEN 0 AND 2",
    "t BETWEEN '1992-01-01' AND DATE '1994-12-31'", "i NOT BETWEEN 1 AND 5", "s LIKE 'forest%'",
    "s LIKE '%o%w_r%'", "s NOT LIKE '%l%'", "s LIKE '%'", "s LIKE '___'", "s LIKE 'a%b'",
    "CASE WHEN i > 0 THEN d WHEN b THEN 0 END", "CASE WHEN b THEN e * 2 ELSE 0 END",
    "CASE WHEN b THEN 1 ELSE j END", "CASE WHEN b THEN s ELSE NULL END", "IF(b, e, d)",
    "IF(i > 0, 1, 0)", "coalesce(i, j, 0)", "coalesce(d, e, 0)", "coalesce(s, 'none')",
    "greatest(i, j)", "least(e, NULL)", "greatest(t, DATE '1993-01-01')", "CAST(i AS bigint)",
    "CAST(e AS decimal(12,1))", "CAST(w AS decimal(38,4))", "CAST(e AS double)",
    "CAST(j AS decimal(20,3))", "CAST(i AS double)", "CAST(NULL AS date)", "CAST(h AS int)",
    "CAST(CAST(j AS decimal(38,0)) AS bigint)",
    "substring(s, 1, 2)", "substring(s, 3, 100)", "substring(s, 2)", "length(s)", "s || 'x'",
    "s || s", "year(t)", "month(t)", "day(t)", "extract(YEAR FROM t)", "quarter(t)",
]  # fmt: skip
TOTALS = [
    "count(*)", "count(i)", "count(DISTINCT i)", "count(DISTINCT s)", "count(DISTINCT x)",
    "sum(i)", "sum(h)", "sum(e)", "sum(d * e)", "sum(CASE WHEN b THEN e ELSE 0 END)", "avg(i)",
    "avg(e)", "avg(d)", "avg(h)", "sum(w)", "avg(w)", "min(i)", "max(s)", "min(t)", "max(e)",
    "max(x)", "min(x)", "min(b)", "100.00 * sum(e) / sum(e * e)", "sum(e) / 7.0", "0.2 * avg(e)",
    "coalesce(sum(e), 0)", "sum(j) / (count(*) + 1)", "count(*) > 2",
    "sum(e) > 1 AND count(i) > 0",
]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12)
    return bool(a == b) and type(a) is type(b)


def by_spark(spark: SparkSession, query: str, **tables: pa.Table) -> pa.Table:
    for name, rows in tables.items():
        frame = spark.createDataFrame(rows, types.spark_schema(rows.schema))
        frame.createOrReplaceTempView(name)
    return spark.sql(query).toArrow()


def here(query: str, **tables: pa.Table) -> pa.Table | None:
    return answer(query, tables, LIMIT)


def answer(query: str, tables: dict[str, pa.Table], limit: int) -> pa.Table | None:
    known = {
        name: dict(zip(rows.column_names, rows.schema.types, strict=True))
        for name, rows in tables.items()
    }
    try:
        made = local_query(sqlglot.parse_one(query, dialect="spark"), known)
    except DiffersError:
        return None
    return execute(made.sql, made.kinds, tables, limit=limit)


def compare(spark: SparkSession, expressions: list[str], rest: str, rows: pa.Table) -> None:
    items = ", ".join(f"{text} AS c{n}" for n, text in enumerate(expressions))
    theirs = by_spark(spark, f"SELECT {items} FROM {rest}", t=rows)
    for number, text in enumerate(expressions):
        ours = here(f"SELECT {text} AS c FROM {rest}", t=rows)
        assert ours is not None, f"{text} was left to Spark"
        want = theirs.column(number)
        assert types.canonical(want.type) == ours.schema.field(0).type or pa.types.is_null(
            want.type
        ), f"{text}: {ours.schema.field(0).type}, in Spark {want.type}"
        pairs = zip(ours.column(0).to_pylist(), want.to_pylist(), strict=True)
        wrong = [pair for pair in pairs if not same(*pair)]
        assert not wrong, f"{text}: {wrong}, ours first"


def test_values_are_sparks(spark: SparkSession) -> None:
    compare(spark, VALUES, "t", ROWS)


def test_totals_are_sparks(spark: SparkSession) -> None:
    compare(spark, TOTALS, "t", ROWS)
    compare(spark, TOTALS, "t WHERE i > 5", ROWS)
    compare(spark, TOTALS, "t WHERE i IS NULL AND i > 5", ROWS)  # one row, of nothing


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.stress)])
def test_random_numbers_are_sparks(spark: SparkSession, rounds: int) -> None:
    """Types of decimals follow from those of operands, deep down."""
    random = Random(seed())
    columns = {
        f"n{n}": pa.decimal128(p, s)
        for n, (p, s) in enumerate([(5, 2), (9, 0), (15, 2), (18, 6), (25, 4), (38, 10), (3, 3)])
    }
    values = {
        name: pa.array(
            [Decimal(random.randint(-999, 999)).scaleb(-kind.scale) for _ in range(20)], kind
        )
        for name, kind in columns.items()
    }
    whole = {
        "i": pa.array([random.randint(1, 9) for _ in range(20)], pa.int32()),
        "j": pa.array([random.randint(1, 9) for _ in range(20)], pa.int64()),
    }

    def term(depth: int) -> str:
        if depth == 0 or random.random() < 0.2:
            plain = [*columns, "i", "j", "2", "0.07", "100.00", "-3", "1.5"]
            return random.choice(plain)
        a, b = term(depth - 1), term(depth - 1)
        shapes = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"-({a})"]
        shapes += [f"({a}) / {random.choice(['i', 'j', '7', '0.3', '12.50'])}"]
        shapes += [f"CASE WHEN {a} > {b} THEN {a} ELSE {b} END", f"coalesce({a}, {b})"]
        return random.choice(shapes)

    rows = pa.table({**values, **whole})
    taken, left = 0, 0
    for _ in range(rounds):
        texts = [term(3) for _ in range(40)]
        known = []
        for text in texts:
            # Digits that no type holds: Spark has its own way with them.
            if here(f"SELECT {text} AS c FROM t", t=rows) is None:
                left += 1
            else:
                known.append(text)
        taken += len(known)
        compare(spark, known, "t", rows)
        counted.count("expressions of decimals, compared with Spark", len(known))
    assert taken > 4 * left, f"{left} of {taken + left} expressions were left to Spark"


JOINS = [
    "SELECT a.i, b.j FROM t a JOIN t b ON a.i = b.i",
    "SELECT a.g, b.j FROM t a JOIN t b ON a.g <=> b.g",
    "SELECT a.i, b.j FROM t a LEFT JOIN t b ON a.i = b.h AND b.j > 1",
    "SELECT a.i, b.j FROM t a FULL JOIN t b ON a.i = b.h",
    "SELECT a.i FROM t a LEFT SEMI JOIN (SELECT h FROM t) b ON a.i = b.h",
    "SELECT a.i FROM t a LEFT ANTI JOIN (SELECT h FROM t) b ON a.i = b.h",
    "SELECT a.i, b.h FROM t a CROSS JOIN (SELECT h FROM t) b",
    "SELECT a.x, b.x AS y FROM t a JOIN t b ON a.x = b.x",
    "SELECT g, count(*) AS n, sum(e) AS s FROM t GROUP BY g HAVING count(*) > 1",
    "SELECT x, count(*) AS n FROM t GROUP BY x",
    "SELECT x, g, sum(j) AS n FROM (SELECT * FROM t WHERE j > 0) q GROUP BY x, g",
    "SELECT i AS k FROM t UNION ALL SELECT j FROM t",
    "SELECT e AS k FROM t UNION ALL SELECT d FROM t UNION ALL SELECT i FROM t",
    "SELECT DISTINCT g, b FROM t",
    "SELECT DISTINCT x FROM t",
    "SELECT DISTINCT g, -x AS y FROM t",
    "SELECT x, pow(x, -1) < 0 AS negative FROM t",
    "SELECT i, CAST('-12' AS decimal(38,18)) AS k FROM t",
]


@pytest.mark.parametrize("query", JOINS)
def test_queries_give_sparks_rows(query: str, spark: SparkSession) -> None:
    ours = here(query, t=ROWS)
    assert ours is not None
    theirs = by_spark(spark, query, t=ROWS)
    assert ours.schema.types == [types.canonical(kind) for kind in theirs.schema.types]
    # `repr` tells zeros of different signs apart.
    found, want = (
        sorted(repr(tuple(row.values())) for row in rows.to_pylist()) for rows in (ours, theirs)
    )
    assert found == want


LEFT_TO_SPARK = [
    "SELECT upper(s) AS k FROM t",  # one letter may become two
    "SELECT s LIKE 'a\\_b' AS k FROM t",
    "SELECT s > i AS k FROM t",
    "SELECT t > 'last year' AS k FROM t",
    "SELECT round(d, 1) AS k FROM t",
    "SELECT CAST(d AS int) AS k FROM t",
    "SELECT CAST(s AS int) AS k FROM t",
    "SELECT CAST(i AS string) AS k FROM t",
    "SELECT x % 2 AS k FROM t",
    "SELECT substring(s, -2, 1) AS k FROM t",
    "SELECT i FROM t LIMIT 1",
    "SELECT i FROM t UNION SELECT j FROM t",
    "SELECT i FROM t GROUP BY ROLLUP (i)",
    "SELECT collect_list(i) AS k FROM t",
    "SELECT first(i) AS k FROM t",
    "SELECT sum(i) FILTER (WHERE b) AS k FROM t",
    "SELECT sum(j) OVER (PARTITION BY g) AS k FROM t",
    "SELECT row_number() OVER (PARTITION BY g ORDER BY j NULLS LAST) AS k FROM t",
    "SELECT CAST(w AS double) AS k FROM t",  # the last bit of many digits
    "SELECT w * x AS k FROM t",
    "SELECT CAST('20200101' AS date) AS k FROM t",
    "SELECT DATE '9999-12-31' + INTERVAL 1 DAY AS k FROM t",
    "SELECT i FROM elsewhere",
    "SELECT i FROM t a, t b",  # which one?
    "SELECT 1 AS k",
    "SELECT NULL AS k FROM t",
    "SELECT sum(j) / count(*) AS k FROM t WHERE i IS NULL AND i > 5",
    "SELECT explode(array(1, 2)) AS k FROM t",
    # These fail, or are NULL: Spark's settings decide.
    "SELECT i + 2000000000 AS k FROM t",
    "SELECT i / 0 AS k FROM t",
    "SELECT d / (d - d) AS k FROM t",
    "SELECT CAST(d AS decimal(3,2)) AS k FROM t",
    "SELECT sum(j * 4000000000) AS k FROM t",
]


@pytest.mark.parametrize("query", LEFT_TO_SPARK)
def test_what_may_differ_is_left_to_spark(query: str) -> None:
    assert here(query, t=ROWS) is None


@pytest.mark.parametrize("count", [10, 500_000])  # found at once, or while rows come out
def test_a_failure_is_left_to_spark_wherever_it_comes(count: int) -> None:
    numbers = pa.array([1] * (count - 1) + [2**31 - 1], pa.int32())
    assert here("SELECT i + 1 AS k FROM t", t=pa.table({"i": numbers})) is None


def test_more_rows_than_the_limit_are_left_to_spark() -> None:
    query = "SELECT a.i FROM t a CROSS JOIN t b"
    assert answer(query, {"t": ROWS}, 48) is None
    found = answer(query, {"t": ROWS}, 49)
    assert found is not None
    assert found.num_rows == 49


def test_it_reaches_nothing_outside_of_memory(tmp_path: Any) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("i\n1\n")
    assert here(f"SELECT i FROM `{path}`", t=ROWS) is None
    assert here(f"SELECT count(*) AS k FROM read_csv('{path}')", t=ROWS) is None


def test_parts_that_are_alike_keep_their_columns() -> None:
    """DuckDB 1.5.5 gives the ids twice here, if it is left to share the two plans."""
    counts = "(SELECT id, count(*) AS n FROM t WHERE s = 'x' GROUP BY id) WHERE n > -1"
    with duckdb.connect() as connection:
        without_shared_plans(connection)
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (23::BIGINT, 'x'), (28, 'x')) t(id, s)"
        )
        found = connection.execute(
            f"SELECT id, NULL FROM {counts} UNION ALL SELECT NULL, n FROM {counts}"
        ).fetchall()
    assert sorted(found, key=str) == [(23, None), (28, None), (None, 1), (None, 1)]


def test_few_rows_take_one_thread_and_many_take_all() -> None:
    threads = "SELECT current_setting('threads') AS n FROM t LIMIT 1"
    kind = {"n": pa.int64()}

    def used(rows: int) -> int:
        found = execute(threads, kind, {"t": pa.table({"a": range(rows)})}, limit=LIMIT)
        assert found is not None
        return int(found["n"][0].as_py())

    assert used(10) == used(100_000) == 1
    usual = duckdb.execute("SELECT current_setting('threads')").fetchall()[0][0]
    assert used(100_001) == usual
