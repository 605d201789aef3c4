"""Users' texts on their way to Spark: what passes, what is refused, and the list of functions."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot

import tailrace
from tailrace.spark_sql.functions import ALLOWED, GRAMMAR, REFUSED, users_functions
from tailrace.spark_sql.grammar import RefusedError, without_comments
from tailrace.store.spark_session import SparkProvider
from tailrace.store.spark_text import check_condition, check_query, named_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def check(text: str) -> list[str]:
    """The tables that a query names, if it passes, and all its functions are Spark's."""
    plain = without_comments(text)
    tree = sqlglot.parse_one(plain, dialect="spark")
    assert not check_query(plain, tree)
    return [table.sql("spark", comments=False).split(" ")[0] for table in named_tables(tree)]


# --- queries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT a, b.c FROM s.t WHERE a IN (1, 2) GROUP BY a, b.c ORDER BY a, b.c LIMIT 3", "s.t"),
        ("SELECT * FROM t, s.u JOIN v ON t.a = v.a, w WHERE a IS NOT DISTINCT FROM b", "t s.u v w"),
        (
            "SELECT extract(YEAR FROM d), trim(BOTH 'x' FROM s), overlay(a PLACING b FROM 3), "
            "substring(a FROM 2 FOR 3), position('a' IN b) FROM t",
            "t",
        ),
        ("WITH x(a, b) AS (SELECT 1, 2), y AS (FROM x) SELECT * FROM x, y JOIN z USING (a)", "z"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "t"),
        ("WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r) SELECT n FROM r", ""),
        ("SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) q, c", "c"),
        ("SELECT * FROM VALUES (1, 'a'), (2, null), (null, DATE '2020-01-01') AS q(a, b), t", "t"),
        (
            "SELECT /*+ BROADCAST(t), MERGE(`u`) */ * FROM t LEFT ANTI JOIN u ON (t.a, 1) = u.b",
            "t u",
        ),
        (
            "SELECT sum(a) OVER (PARTITION BY b, c.d ORDER BY e), count(*) FILTER (WHERE a > 1) "
            "OVER w FROM t WINDOW w AS (PARTITION BY a, b.c), z AS (ORDER BY c)",
            "t",
        ),
        ("SELECT * FROM t LATERAL VIEW OUTER explode(m) x AS k, v WHERE k > x.v", "t"),
        ("SELECT * FROM t PIVOT (sum(a) AS s, avg(b.c) FOR d IN ('x', 'y'))", "t"),
        ("SELECT a.b.c[0]::int, m['k'], `odd name`.`a``b`, f -> f + 1, t.* EXCEPT (a) FROM t", "t"),
        ("SELECT * FROM s.t VERSION AS OF 3 JOIN u TIMESTAMP AS OF '2020-01-01' ON true", "s.t u"),
        ("FROM t SELECT a, b.c WHERE d", "t"),
        ("SELECT 'it''s', \"-- no\", r'\\', x'1F', 1L, 1.5BD, 1e-3, .5 -- c\n /* d */ FROM t", "t"),
        ("SELECT (SELECT max(a) FROM u), EXISTS (FROM v) FROM t WHERE a IN (SELECT 1)", "t u v"),
        ("(SELECT a FROM t UNION ALL SELECT b FROM u) EXCEPT (SELECT d, e.f FROM w)", "t u w"),
        ("SELECT * FROM range(10) r, explode(array(1, a.b)) AS e(x), LATERAL (SELECT 1)", ""),
        ("SELECT count(DISTINCT a, b.c) FROM t GROUP BY GROUPING SETS ((a, b), ()), CUBE(a)", "t"),
        ("SELECT CAST(a AS DECIMAL(9, 2)), aggregate(a, 0, (x, y) -> x + y), `from` FROM t", "t"),
        ("SELECT `größe`, '${x', '$' || '{env:HOME}' FROM t", "t"),
    ],
)
def test_ordinary_queries_pass(text: str, tables: str) -> None:
    assert sorted(check(text)) == sorted(tables.split())


@pytest.mark.parametrize(
    "text",
    [
        # Spark reads on behind a backslash at the end of a comment, and takes /* for its rest.
        "SELECT 1 -- \\\n/*\nUNION ALL SELECT value FROM text.`/etc/passwd` --*/",
        "SELECT 1 /* /* */ UNION ALL SELECT value FROM text.`/etc/passwd` -- */",
    ],
)
def test_what_is_a_comment_to_us_never_reaches_spark(text: str) -> None:
    assert without_comments(text).split() == ["SELECT", "1"]


@pytest.mark.parametrize(
    "text",
    [
        # Keywords are names to Spark, where that makes sense of a text.
        "SELECT * FROM a LIMIT (b), text.x",
        "SELECT * FROM a WINDOW (b), text.x",
        "SELECT * FROM VALUES (1), text.x TABLESAMPLE (10 ROWS)",
        "SELECT * FROM VALUES (1), (text.x) TABLESAMPLE (10 ROWS)",
        "SELECT * FROM a SELECT (b), text.x",
        "FROM a SELECT (b), text.x SELECT *",
        "FROM a SELECT, text.x",
        "FROM a SELECT (b), text.x",
        "SELECT * FROM LATERAL text.x",
        "SELECT * FROM a, LATERAL view, text.x",
        "SELECT IS DISTINCT FROM text.x",
        # What sqlglot does not know.
        "SELECT * FROM (TABLE text.x)",
        "SELECT * FROM a WHERE b IN (TABLE text.x)",
        "SELECT * FROM f(TABLE(text.x))",
        "SELECT * FROM STREAM text.x",
        "SELECT * FROM STREAM(x)",
        "SELECT * FROM w.x.y.z",
        # What is no query.
        "WITH x AS (SELECT 1) INSERT INTO spark_catalog.default.t SELECT 1",
        "FROM t INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT *",
        "SELECT TRANSFORM(a) USING 'cat' FROM t",
        "FROM t MAP a USING 'cat'",
        # Names that are made up.
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM `identifier`('text.x')",
        "SELECT * FROM IDENTIFIER(:name)",
        "SELECT IDENTIFIER('refl' || 'ect')('a', 'b')",
        "SELECT \u0131dentifier('a')",
        "\u017fELECT * FROM t",
        # Functions under other names.
        "SELECT `reflect`('java.lang.System', 'getenv')",
        "SELECT \"reflect\"('java.lang.System', 'getenv')",
        "SELECT ReFlect ('java.lang.System', 'getenv')",
        "SELECT builtin.reflect('java.lang.System', 'getenv')",
        "SELECT system.builtin.abs(1)",
        # What Spark replaces before it reads.
        "SELECT '${env:HOME}'",
        "SELECT ${spark.app.name}",
        "SELECT * FROM `${system:user.home}`",
        # What Spark cuts elsewhere.
        "SELECT $$a$$",
        "SELECT s3://bucket/x",
        "SELECT N'a'",
        "SELECT {fn now()}",
        "SELECT a\x00b FROM t",
    ],
)
def test_what_spark_may_read_in_another_way_is_refused(text: str) -> None:
    with pytest.raises((RefusedError, sqlglot.errors.ParseError)):
        check(text)


# --- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "id IN (1, 2) AND (a OR NOT (b)) -- all of them", "exists(tags, x -> x LIKE 'a%')",
        "values > 3 AND desc = 'x'", "extract(YEAR FROM d) = 2026", "a IS DISTINCT FROM b",
        "cast(a AS decimal(9, 2)) > 1 AND m['k'].f = \"it's\"", "(a, b) = (1, 'SELECT')",
    ],
)  # fmt: skip
def test_conditions_about_a_row_pass(text: str) -> None:
    assert check_condition(SparkProvider(), text, of="t").rstrip() == text.partition(" --")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id IN (SELECT 1)", "without subqueries"),
        ("id IN (FROM text.x)", "without subqueries"),
        ("id IN ((TABLE text.x))", "without subqueries"),
        ("id = (VALUES (1))", "without subqueries"),
        ("id = (WITH c AS (SELECT 1) SELECT * FROM c)", "without subqueries"),
        ("f(a, TABLE(text.x))", "without subqueries"),
        ("note = '${env:HOME}'", "a setting of its own"),
        ("reflect('java.lang.System', 'exit', 1) = 1", r"reflect\(\) is refused: it runs code"),
        ("IDENTIFIER('note') = 1", "write the name itself"),
        ("id = 1 -- \\\n/*\nOR reflect('a', 'b') --*/ OR `reflect`('c', 'd')", "reflect"),
        ("id = 'x", "t: cannot use .* has no end"),
    ],
)
def test_conditions_reach_nothing_but_the_row(text: str, message: str) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        check_condition(SparkProvider(), text, of="t")


# --- functions -----------------------------------------------------------------------------------


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools/spark_functions.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_every_function_of_this_spark_was_looked_at(spark: SparkSession) -> None:
    """A new version's functions are refused: `tools/spark_functions.py` shows them."""
    known = _tool().built_in(spark)
    assert len(known) > 400
    assert known - ALLOWED - set(REFUSED) == set()
    assert not ALLOWED & set(REFUSED)
    assert not {word.lower() for word in GRAMMAR} & set(REFUSED)


def test_the_guide_lists_what_is_refused() -> None:
    guide = (ROOT / "docs/sql.md").read_text(encoding="utf-8")
    for name, reason in REFUSED.items():
        (line,) = re.findall(rf"^\|.*`{name}`.*\|$", guide, re.MULTILINE)
        assert reason in line


def test_the_operators_own_functions_are_known(spark: SparkSession) -> None:
    spark.udf.register("twice_as_much", lambda x: 2 * x, "bigint")
    try:
        assert "twice_as_much" in users_functions(spark)
        assert not users_functions(spark) & ALLOWED
        check_condition(SparkProvider(spark), "Twice_As_Much(id) > 3", of="t")
    finally:
        spark.sql("DROP TEMPORARY FUNCTION twice_as_much")
    with pytest.raises(tailrace.InvalidError, match=r"no function twice_as_much\(\)"):
        check_condition(SparkProvider(spark), "twice_as_much(id) > 3", of="t")
