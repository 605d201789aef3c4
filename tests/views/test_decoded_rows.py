"""How many rows a refresh decodes: those of the row groups that hold what a change leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import tailrace
from tailrace.views.refresh import execution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

GROUP = 100
QUERY = """
SELECT name, sum(amount) AS total, count(*) AS n
FROM customers JOIN orders ON orders.customer = customers.id JOIN lines ON lines.id = orders.id
GROUP BY name
"""


@pytest.fixture
def lake(sqlite_lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """Ten orders of each customer, one after the other, and three lines of each order."""
    settings = tailrace.Settings(row_group_rows=GROUP)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as opened:
        customers = opened.create_table(
            "customers", {"id": "bigint", "name": "string"}, primary_key="id"
        )
        customers.append([{"id": n, "name": f"c{n}"} for n in range(500)])
        orders = opened.create_table(
            "orders", {"id": "bigint", "customer": "bigint"}, primary_key="id"
        )
        numbers = np.arange(5_000)
        orders.append(pa.table({"id": numbers, "customer": numbers // 10}))
        columns = {"id": "bigint", "line": "bigint", "amount": "bigint"}
        lines = opened.create_table("lines", columns, primary_key=["id", "line"])
        every = np.arange(15_000)
        lines.append(pa.table({"id": every // 3, "line": every % 3, "amount": every}))
        opened.create_view("totals", QUERY, policy="incremental").refresh()
        yield opened


def change(lake: tailrace.Lake, order: int) -> None:
    """An order moves on to the next customer, and its first line gets another amount."""
    with lake.transaction() as txn:
        txn.table("orders").upsert([{"id": order, "customer": order // 10 + 1}])
        txn.table("lines").upsert([{"id": order, "line": 0, "amount": 7}])


def refresh(lake: tailrace.Lake, name: str = "totals") -> int:
    """How many rows are decoded."""
    view, kept = lake.view(name), lake.runtime.kept_files
    before = kept.decoded
    assert view.refresh().strategy == "merge"
    decoded = kept.decoded - before
    assert view.verify().ok
    return decoded


def test_a_refresh_decodes_the_row_groups_that_a_change_leads_to(lake: tailrace.Lake) -> None:
    change(lake, 4_321)
    # The row group of the order, that of its lines, that of the customers before and after, and
    # what is new: a row of orders and one of lines. The stored view is read as a whole.
    assert refresh(lake) == GROUP * 3 + 2 + 500


def test_the_next_one_decodes_what_is_new(lake: tailrace.Lake) -> None:
    change(lake, 4_321)
    refresh(lake)
    change(lake, 4_329)
    # A row of orders, one of lines, and the two of the stored view that were written last.
    assert refresh(lake) == 1 + 1 + 2
    # Other lines, of an order and of customers that are in the same row groups as before.
    change(lake, 4_399)
    assert refresh(lake) == GROUP + 1 + 1 + 2
    # Other row groups of orders and lines; of customers 399 and 400, one is at hand.
    change(lake, 3_999)
    assert refresh(lake) == GROUP * 3 + 1 + 1 + 2


def test_stored_groups_are_found_in_few_row_groups(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_FEW_STORED", 0)
    storage = lake.runtime.storage
    others = set(storage.list())
    query = "SELECT sum(amount) AS total, id FROM lines GROUP BY id"
    lake.create_view("by_order", query, policy="incremental").refresh()
    files = set(storage.list()) - others
    change(lake, 4_321)
    # The row group of the lines, the new one, and a row group of each stored file: they have
    # 5,000 groups in the order of their keys.
    assert refresh(lake, "by_order") == GROUP + 1 + len(files) * GROUP
    assert len(files) < 5
