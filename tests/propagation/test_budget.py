"""How much a small change asks of the catalog: counted, and held to what it was built for."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import database
from tests.support.proxy import proxy_to
from tests.support.round_trips import Counter
from tests.support.steps import stepped_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

ROWS, CUSTOMERS = 2000, 100
ORDERS = {"id": "bigint", "customer": "bigint", "status": "string", "amount": "double"}
VIEWS = {
    "a filter": "SELECT id, customer, amount FROM orders WHERE status = 'open'",
    "a join with sums": """
        SELECT c.city, count(*) AS orders, sum(o.amount) AS total
        FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city""",
}


class Shop:
    """A table of orders that changes by a few rows at a time."""

    def __init__(self, lake: tailrace.Lake) -> None:
        self.lake, self.random, self.next = lake, Random(1), ROWS
        orders = lake.create_table("orders", ORDERS, primary_key="id")
        orders.append([self.order(number) for number in range(ROWS)])
        customers = {"id": "bigint", "city": "string"}
        lake.create_table("customers", customers, primary_key="id").append(
            [{"id": number, "city": f"city {number % 10}"} for number in range(CUSTOMERS)]
        )

    def order(self, number: int) -> dict[str, Any]:
        customer, status = self.random.randrange(CUSTOMERS), self.random.choice(["open", "paid"])
        return {"id": number, "customer": customer, "status": status, "amount": 1.5}

    def commit(self) -> None:
        """Append five orders and change one, in a transaction."""
        with self.lake.transaction() as txn:
            orders = txn.table("orders")
            orders.append([self.order(self.next + number) for number in range(5)])
            orders.upsert([self.order(self.random.randrange(ROWS))])
        self.next += 5


@pytest.fixture
def shop(lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shop, Counter]]:
    """A shop, and what is asked of its catalog."""
    # On a slow machine a connection may seem to have been idle, and is checked.
    monkeypatch.setattr(database, "_IDLE", 3600.0)
    with ExitStack() as stack:
        url, proxy = lake_args.url, None
        if lake_args.catalog == "postgres":
            port = sa.make_url(url).port
            assert port is not None
            proxy = stack.enter_context(proxy_to(port))
            through = sa.make_url(url).set(port=proxy.port)
            url = through.render_as_string(hide_password=False)
        lake = stack.enter_context(tailrace.connect(url, data=lake_args.data))
        yield Shop(lake), Counter(lake, proxy)


# Of most commits and refreshes; one that ends a file, or finds nothing in memory, takes some more.
COMMIT, REFRESH = {"sqlite": 16, "postgres": 10}, {"sqlite": 26, "postgres": 23}
MORE = 5


def test_a_small_commit_asks_little(shop: tuple[Shop, Counter], catalog: str) -> None:
    made, counter = shop
    made.commit()
    asked = []
    for _ in range(10):
        with counter.counted() as counts:
            made.commit()
        asked += counts
    assert sorted(asked)[len(asked) // 2] <= COMMIT[catalog]
    assert max(asked) <= COMMIT[catalog] + MORE


@pytest.mark.parametrize("view", VIEWS)
def test_a_small_refresh_asks_little(shop: tuple[Shop, Counter], catalog: str, view: str) -> None:
    made, counter = shop
    made.lake.create_view("v", VIEWS[view])
    with stepped_node(made.lake) as node:
        node.until_fresh()
        for _ in range(3):
            made.commit()
            assert node.step() == 1
        asked = []
        for _ in range(8):
            made.commit()
            with counter.counted() as counts:
                assert node.step() == 1
            asked += counts
    assert sorted(asked)[len(asked) // 2] <= REFRESH[catalog]
    assert max(asked) <= REFRESH[catalog] + MORE
