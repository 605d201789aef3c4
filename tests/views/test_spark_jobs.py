"""What a small refresh takes of Spark: a job of one stage, for whatever joins what is in memory.

And what Spark is given for it: relations in memory as they are.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.views.refresh import on_spark as module
from tests.support.answers import Oracle, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import tailrace

VIEWS = {
    "filter": ("SELECT id, amount FROM orders WHERE amount > 10", "rows"),
    "sums": ("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", "merge"),
    "join with sums": (
        "SELECT c.name, count(*) AS n, sum(o.amount) AS total "
        "FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.name",
        "merge",
    ),
    "semi join": (
        "SELECT id, name FROM customers c "
        "WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > 10)",
        "rows",
    ),
    "outer join": (
        "SELECT c.id, c.name, o.id AS order_id, o.amount "
        "FROM customers c LEFT JOIN orders o ON o.customer = c.id",
        "rows",
    ),
    "joins of five": (
        "SELECT c.name, d.name AS other, count(*) AS n, sum(o.amount) AS total "
        "FROM orders o JOIN customers c ON o.customer = c.id JOIN orders p ON p.customer = c.id "
        "JOIN customers d ON d.id = p.customer JOIN customers e ON e.id = d.id "
        "GROUP BY c.name, d.name",
        "merge",
    ),
    "semi join below a join": (
        "SELECT c.name, o.amount FROM customers c JOIN orders o ON o.customer = c.id "
        "WHERE c.id IN (SELECT p.customer FROM orders p WHERE p.amount > 20 "
        "AND p.amount < (SELECT sum(q.amount) FROM orders q WHERE q.customer = p.customer))",
        "rows",
    ),
    "all of a small table": (
        "SELECT o.customer, count(*) AS n FROM orders o "
        "WHERE o.amount > (SELECT avg(id) FROM customers) GROUP BY o.customer",
        "merge",
    ),
    "union": (
        "SELECT customer AS id FROM orders WHERE amount > 50 UNION SELECT id FROM customers",
        "merge",
    ),
}


def jobs(spark: SparkSession) -> int:
    """How many jobs Spark has started so far."""
    return int(_scheduler(spark).numTotalJobs())


def stages(spark: SparkSession) -> int:
    """How many stages."""
    return int(_scheduler(spark).nextStageId())


def _scheduler(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc().dagScheduler()


@pytest.fixture
def shop(on_spark: tailrace.Lake) -> tailrace.Lake:
    orders = {"id": "bigint", "customer": "bigint", "amount": "decimal(10,2)"}
    on_spark.create_table("orders", orders, primary_key="id").append(
        [{"id": n, "customer": n % 7, "amount": n % 90} for n in range(500)]
    )
    on_spark.create_table("customers", {"id": "bigint", "name": "string"}, primary_key="id").append(
        [{"id": n, "name": f"c{n % 3}"} for n in range(9)]
    )
    return on_spark


@pytest.mark.parametrize("shape", VIEWS)
def test_a_small_refresh_is_one_job_of_one_stage(
    shop: tailrace.Lake, spark: SparkSession, shape: str
) -> None:
    query, strategy = VIEWS[shape]
    oracle = Oracle(shop, spark)
    view = shop.create_view("main.shown", query, policy="incremental")
    view.refresh()
    for amount in (60, 5):
        shop.table("orders").upsert([{"id": 3, "customer": 8, "amount": amount}])
        shop.table("orders").delete([{"id": amount}])
        before = jobs(spark), stages(spark)
        done = view.refresh()
        started = jobs(spark) - before[0], stages(spark) - before[1]
        assert (*started, done.strategy) == (1, 1, strategy)
        oracle.learn()
        assert_same(view.to_arrow(), oracle.answer(query), shape)


KINDS = {
    "id": "bigint",
    "odd. `name": "int",
    "flag": "boolean",
    "small": "tinyint",
    "ratio": "double",
    "price": "decimal(38,18)",
    "text": "string",
    "bytes": "binary",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "list": "array<timestamp>",
    "struct": "struct<a: timestamp_ntz, b: array<decimal(5,2)>>",
    "map": "map<string, struct<c: timestamp, d: date>>",
}


def values(number: int) -> dict[str, Any]:
    """A row; every third has nothing but its number."""
    if number % 3 == 2:
        return {"id": number, **dict.fromkeys(list(KINDS)[1:])}
    zoned = dt.datetime(1583 + number, 3, 27, 1, 30, 0, 7, dt.UTC)
    plain, day = zoned.replace(tzinfo=None), zoned.date()
    return {
        "id": number,
        "odd. `name": number,
        "flag": number % 2 == 0,
        "small": -number,
        "ratio": -0.0 if number % 2 else float("nan"),
        "price": Decimal("-0.123456789012345678") if number % 2 else Decimal(0),
        "text": "" if number % 2 else "ä\0,'",
        "bytes": bytes([number, 0]),
        "day": day,
        "moment": zoned,
        "local": plain,
        "list": [zoned, None] if number % 2 else [],
        "struct": {"a": plain, "b": [Decimal("1.50"), None]},
        "map": {"": {"c": zoned, "d": day}, "k": None},
    }


@pytest.mark.parametrize("most", [2**22, 0], ids=["together", "each"])
def test_rows_of_every_type_are_handed_to_spark_as_they_are(
    on_spark: tailrace.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "_PACKED_BYTES", most)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        facts = on_spark.create_table("facts", KINDS, primary_key="id")
        facts.append([values(number) for number in range(3)])
        names = on_spark.create_table("names", {"id": "bigint"})
        names.append([{"id": number} for number in range(12)])
        query = "SELECT f.* FROM facts f JOIN names n ON f.id = n.id"
        view = on_spark.create_view("main.shown", query, policy="incremental")
        view.refresh()
        facts.upsert([values(number) for number in range(2, 9)])
        facts.delete([{"id": 1}])
        assert view.refresh().strategy == "rows"
        assert view.verify().ok
        assert_same(view.to_arrow(), facts.to_arrow(), "every type")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize(("few", "mode"), [(500_000, "NO_CODEGEN"), (5, "FALLBACK")])
def test_code_is_compiled_only_where_many_rows_are_read(
    shop: tailrace.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: int, mode: str
) -> None:
    monkeypatch.setattr(module, "_FEW_ROWS", few)
    modes = []

    def small_session(session: SparkSession, *, tiny: bool) -> SparkSession:
        made = beside(session, tiny=tiny)
        modes.append(made.conf.get("spark.sql.codegen.factoryMode"))
        return made

    beside = module.small_session
    monkeypatch.setattr(module, "small_session", small_session)
    query, strategy = VIEWS["all of a small table"]
    oracle = Oracle(shop, spark)
    view = shop.create_view("main.shown", query, policy="incremental")
    view.refresh()
    shop.table("orders").upsert([{"id": 3, "customer": 8, "amount": 60}])
    assert (view.refresh().strategy, modes) == (strategy, [mode])
    oracle.learn()
    assert_same(view.to_arrow(), oracle.answer(query))
