"""How many jobs of Spark a small refresh takes: one, for whatever joins what is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

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
    "union": (
        "SELECT customer AS id FROM orders WHERE amount > 50 UNION SELECT id FROM customers",
        "merge",
    ),
}


def jobs(spark: SparkSession) -> int:
    """How many jobs Spark has started so far."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


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
def test_a_small_refresh_is_one_job(shop: tailrace.Lake, spark: SparkSession, shape: str) -> None:
    query, strategy = VIEWS[shape]
    oracle = Oracle(shop, spark)
    view = shop.create_view("main.shown", query, policy="incremental")
    view.refresh()
    for amount in (60, 5):
        shop.table("orders").upsert([{"id": 3, "customer": 8, "amount": amount}])
        shop.table("orders").delete([{"id": amount}])
        before = jobs(spark)
        done = view.refresh()
        assert (jobs(spark) - before, done.strategy) == (1, strategy)
        oracle.learn()
        assert_same(view.to_arrow(), oracle.answer(query), shape)
