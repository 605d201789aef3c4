"""Random texts, read by us and by Spark: what passes has no table that only Spark sees.

Each is a query with a file's name and some keywords put into it, so that one reader may take for a
clause what is an alias to the other. Spark's analysis of those that pass is looked at, no more.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot
from sqlglot import exp

from tailrace.spark_sql import parse_one
from tailrace.spark_sql.grammar import RefusedError, without_comments
from tailrace.store.spark_text import check_query, named_tables
from tests.support import counted, seeds

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUERIES = [
    "SELECT a , b FROM t WHERE a > 1", "SELECT * FROM t , u", "FROM t SELECT a , b", "FROM t , u",
    "SELECT t . a FROM t JOIN u ON t . a = u . a", "SELECT * FROM VALUES ( 1 ) , ( 2 ) AS v ( x )",
    "WITH c AS ( FROM t ) SELECT * FROM c , u", "WITH trim ( SELECT 1 AS a ) SELECT * FROM trim",
    "SELECT a , count( * ) FROM t GROUP BY a , b ORDER BY a , b LIMIT 3", "TABLE t",
    "SELECT * FROM t LATERAL VIEW explode( arr ) x AS y", "SELECT a FROM t |> WHERE a > 1",
    "SELECT sum( a ) OVER w FROM t WINDOW w AS ( ORDER BY a , b )", "SELECT * FROM range( 3 )",
    "SELECT * FROM t WHERE a IN ( SELECT a FROM u )", "SELECT a FROM t UNION ALL SELECT c FROM u",
    "SELECT * FROM t PIVOT ( sum( a ) FOR b IN ( 1 , 2 ) )", "SELECT a IS DISTINCT FROM b FROM t",
    "SELECT extract( YEAR FROM now( ) ) , trim( 'x' FROM 'y' ) FROM t",
    "SELECT * FROM ( SELECT 1 AS a ) q , LATERAL ( SELECT 1 AS z )",
    "SELECT * FROM t TABLESAMPLE ( 10 ROWS )", "SELECT ( SELECT max( a ) FROM u ) FROM t",
]  # fmt: skip
BEFORE = (
    "", ",", "( a ) ,", "( a , b , arr ) ,", "( a , c ) ,", "JOIN", "q ,", "LATERAL", ", LATERAL",
    "( FROM", "(", "( TABLE", ", (", "AS ( FROM", "1 ,", "FROM", "-- \\\n ,",
)  # fmt: skip
AFTER = ("", ")", "AS z", "z", ") z", "TABLESAMPLE ( 10 ROWS )", "SELECT *", "WHERE true")


def _text(draw: random.Random, keywords: list[str], name: str) -> str:
    words = draw.choice(QUERIES).split(" ")
    place = draw.randint(0, len(words))
    put = [*draw.choices(keywords, k=draw.choice([0, 1, 1, 2])), draw.choice(BEFORE), name]
    rest = words[place:] if draw.random() < 0.7 else []
    return " ".join([*words[:place], *put, draw.choice(AFTER), *rest])


def _passes(text: str, name: str) -> bool:
    """Whether we let a text through, without having seen the name as a table's."""
    try:
        tree = parse_one(text)
        check_query(text, tree)
    except (RefusedError, sqlglot.errors.SqlglotError):
        return False
    tables = [table.sql("spark") for table in named_tables(tree) if isinstance(table, exp.Table)]
    return not any(table.startswith(name) for table in tables)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore")
def test_what_passes_has_no_table_that_only_spark_sees(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    (tmp_path / "secret").write_text("secret\n")
    name = f"text.`{tmp_path / 'secret'}`"
    keywords = [row[0] for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    spark.sql("SELECT 1 AS a, 2 AS b, array(3) AS arr").createOrReplaceTempView("t")
    spark.sql("SELECT 1 AS a, 2 AS c").createOrReplaceTempView("u")
    draw = random.Random(seeds.seed())
    read: list[Any] = []
    try:
        for _ in range(60_000):
            text = without_comments(_text(draw, keywords, name))
            if not _passes(text, name):
                continue
            counted.count("texts that passed, read by Spark")
            try:
                plan = spark.sql(text)._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
            except PySparkException:
                continue
            if "Relation [value" in plan:
                read.append(text)
        assert read == []
    finally:
        spark.catalog.dropTempView("t")
        spark.catalog.dropTempView("u")
