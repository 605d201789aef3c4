"""Input that would take long is refused by a limit that is named; work is counted, not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tailrace
from tailrace import arguments, spark_sql
from tailrace.arguments import LONGEST_TEXT
from tailrace.spark_sql import types
from tailrace.spark_sql.grammar import Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

# What sqlglot reads in twice the steps for each level, or each join, more.
CALLS = "struct(" * 30 + "id" + ")" * 30
TIMES = "timestamp(" * 30 + "id" + ")" * 30
JOINS = "SELECT t.id FROM t" + " JOIN t" * 40
# What it goes down into.
PARENTHESES = "(" * 500 + "id" + ")" * 500
CASES = "CASE WHEN " * 100 + "true" + " THEN true END" * 100
NOTS = "NOT " * 5_000 + "true"
SUBQUERIES = "SELECT id FROM (" * 100 + "SELECT id FROM t" + ")" * 100
LONG = "id = 1 OR " * (LONGEST_TEXT // 10 + 1) + "true"
TABLES = "SELECT 1 FROM t" + ", t" * spark_sql.MOST_TABLES

STEPS, DEPTH = "more than .* steps", "nested too deeply"
CONDITIONS = [
    (f"{CALLS} IS NULL", STEPS),
    (f"{TIMES} IS NULL", STEPS),
    (f"{PARENTHESES} = 1", DEPTH),
    (CASES, DEPTH),
    (NOTS, DEPTH),
    (LONG, f"{LONGEST_TEXT:,}"),
]
QUERIES = [
    (f"SELECT {CALLS} AS v FROM t", STEPS),
    (JOINS, STEPS),
    (SUBQUERIES, DEPTH),
    (f"SELECT {PARENTHESES} AS v FROM t", DEPTH),
    (TABLES, f"{spark_sql.MOST_TABLES:,} tables"),
]


def ids(cases: list[tuple[str, str]]) -> list[str]:
    return [text[:12] for text, _ in cases]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the parser's steps; there are no more than a few limits' worth of them."""
    taken = [0]
    plain = Parser._advance

    def counting(self: Any, times: int = 1) -> None:
        taken[0] += 1
        plain(self, times)

    monkeypatch.setattr(Parser, "_advance", counting)
    monkeypatch.setattr(spark_sql, "STEPS", 5_000)  # enough to see that it holds
    yield taken
    assert taken[0] < 20 * spark_sql.STEPS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path_factory.mktemp("limits") / "lake", spark=spark) as lake:
        lake.create_table("t", {"id": "bigint", "note": "string"}, primary_key="id")
        lake.table("t").append([{"id": 1, "note": "late"}])
        lake.create_index("t", "words", using="fulltext", columns=["note"]).wait()
        before = lake.snapshot
        yield lake
        assert lake.snapshot == before


def test_the_steps_of_what_people_write_are_few(steps: list[int]) -> None:
    text = "SELECT a.id, sum(CASE WHEN b.x > 1 THEN struct(b.x, date(b.y)).col1 END) AS s FROM a "
    text += " ".join(f"JOIN b AS b{n} ON a.id = b{n}.id AND b{n}.x IN (1, 2)" for n in range(50))
    spark_sql.parse(f"{text} GROUP BY a.id")
    tokens = len(spark_sql.tokenize(text))
    assert steps[0] < 20 * tokens
    for depth in (5, 8):  # and of what they hardly do
        spark_sql.parse("struct(" * depth + "1" + ")" * depth)
    spark_sql.parse("SELECT * FROM t" + " JOIN t" * 10)
    depth = spark_sql.DEEPEST
    for opened, closed in (("(", ")"), ("abs(", ")"), ("CASE WHEN ", " THEN 1 END")):
        spark_sql.parse(opened * depth + "1" + closed * depth)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(("text", "limit"), CONDITIONS, ids=ids(CONDITIONS))
def test_a_condition_is_bounded(lake: tailrace.Lake, text: str, limit: str) -> None:
    replica = {"consumer": {"kind": "replica", "table": "copy", "where": text}}
    for use in (
        lambda: lake.table("t").delete(text),
        lambda: lake.index("t", "words").search("late", where=text),
        lambda: lake.search("t", text="late", where=text),
        lambda: lake.jobs.register("t", "copy", replica),
        lambda: lake.sql(f"DELETE FROM t WHERE {text}"),
        lambda: lake.sql(f"UPDATE t SET note = 'x' WHERE {text}"),
    ):
        refuses(use, limit)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(("text", "limit"), QUERIES, ids=ids(QUERIES))
def test_a_query_is_bounded(lake: tailrace.Lake, text: str, limit: str) -> None:
    for use in (
        lambda: lake.sql(text),
        lambda: lake.create_view("v", text),
        lambda: lake.explain(text),
        lambda: lake.sql(f"CREATE MATERIALIZED VIEW v AS {text}"),
        lambda: lake.sql(f"INSERT INTO t {text}"),
        lambda: lake.sql(f"CREATE TABLE u AS {text}"),
    ):
        refuses(use, limit)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    "kind",
    [
        "array<" * 200 + "int" + ">" * 200,
        "struct<a:" * 33 + "int" + ">" * 33,
        "map<int," * 100 + "int" + ">" * 100,
        "struct(" * 33 + "int" + ")" * 33,
        "array<" * 50_000,
        "int" + " " * 200_000 + "not",
    ],
    ids=lambda kind: kind[:12],
)
def test_a_type_is_bounded(lake: tailrace.Lake, kind: str) -> None:
    limit = rf"{types.LONGEST:,} characters .* {types.DEEPEST} types inside each other"
    for use in (
        lambda: lake.create_table("u", {"c": kind}),
        lambda: lake.create_table("u", {"c": f"{kind} not null"}),
        lambda: lake.table("t").add_column("c", kind),
        lambda: lake.table("t").widen_column("id", kind),
    ):
        refuses(use, limit)


def test_a_type_that_comes_as_an_object_is_bounded(lake: tailrace.Lake) -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

    arrow: Any = pa.int8()
    spark: Any = IntegerType()
    for _ in range(types.DEEPEST):
        arrow, spark = pa.list_(arrow), ArrayType(spark)
    types.check_depth(arrow)
    for more in (1, 200, 2_000):
        for _ in range(more):
            arrow, spark = pa.list_(arrow), ArrayType(spark)
        forms: list[Any] = [pa.schema([("c", arrow)]), {"c": arrow}]
        if more <= 200:  # Spark itself makes none that is much deeper
            forms.append(StructType([StructField("c", spark)]))
        for columns in forms:
            refuses(lambda columns=columns: lake.create_table("u", columns), f"{types.DEEPEST} ")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("late " * 2_000, "1024 words"),
        ("(" * 100 + "late" + ")" * 100, "inside each other"),
        ("x" * 200_000, "100,000 letters"),
        ("x" * 1_000 + "~2", "200 letters"),
        ("x" * 1_000 + "*", "200 letters"),
    ],
    ids=lambda text: text[:8],
)
def test_a_search_is_bounded(lake: tailrace.Lake, text: str, limit: str) -> None:
    refuses(lambda: lake.index("t", "words").search(text), limit)
    refuses(lambda: lake.search("t", text=text), limit)


def test_a_spec_is_bounded(lake: tailrace.Lake) -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = {"a": value}
        return value

    for depth in (arguments.DEEPEST_JSON + 1, 5_000):
        given = nested(depth)
        for use in (
            lambda given=given: lake.jobs.register(
                "t", "j", {"consumer": {"kind": "x", "o": given}}
            ),
            lambda given=given: lake.create_view("v", "SELECT id FROM t", trigger=given),
            lambda given=given: lake.create_index(
                "t", "i", using="fulltext", columns="note", trigger=given
            ),
        ):
            refuses(use, f"at most {arguments.DEEPEST_JSON} values inside each other")
    many = {"consumer": {"kind": "x", "o": ["x" * 999_999] * 5}}
    refuses(lambda: lake.jobs.register("t", "j", many), f"{arguments.MOST_JSON:,}")


def test_names_are_bounded(lake: tailrace.Lake) -> None:
    for use in (
        lambda: lake.table("x" * 5_000),
        lambda: lake.create_schema("x" * 256),
        lambda: lake.sql(f"DROP TABLE {'x' * 5_000}"),
        lambda: lake.jobs.register("t", "x" * 256, {"consumer": {"kind": "x"}}),
        lambda: tailrace.connect("unused", tenant="x" * 256),
    ):
        refuses(use, "255 characters|1100 characters")


def refuses(use: Callable[[], object], limit: str) -> None:
    with pytest.raises(tailrace.InvalidError, match=limit) as caught:
        use()
    assert len(str(caught.value)) < 2_000
