"""The 24 tables of TPC-DS: keys, and rows that are few but that the queries find.

The generator's smallest scale that ends is 0.01, where there is one store, one warehouse, and so
on, and a quarter of the queries finds nothing. So its rows are made denser: there are fewer items,
customers and addresses, more of what there was one of, what refers to them is dealt out anew, and
some rows get the values that queries ask for.
"""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.support import duck
from tests.support.tpcds.aim import Aim
from tests.support.tpcds.keys import COMPLETE, FACTS, KEYS, Row, references

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    import tailrace
    from tests.support.tpcds.wishes import Wish

SCALE = 0.01
# The rows that are taken. Of demographics, a share that has no divisor in common with the sizes
# of what they are the cross product of: every combination of a few columns stays.
TAKEN = {
    "catalog_page": "cp_catalog_page_sk % 100 = 1",
    "customer": "c_customer_sk <= 120",
    "customer_address": "ca_address_sk <= 80",
    "customer_demographics": "cd_demo_sk % 13 = 0",
    "date_dim": "d_year BETWEEN 1998 AND 2003",
    "household_demographics": "hd_demo_sk % 11 = 0",
    "item": "i_item_sk <= 60",
    "time_dim": "t_time_sk % 600 = 0",
    "inventory": "inv_item_sk <= 60",
    "store_sales": "ss_ticket_number % 3 = 0",
    "store_returns": "sr_ticket_number % 3 = 0",
    "catalog_sales": "cs_order_number % 3 = 0",
    "catalog_returns": "cr_order_number % 3 = 0",
    "web_sales": "ws_order_number % 3 = 0",
    "web_returns": "wr_order_number % 3 = 0",
}
# How many there are in the end of what the smallest scale has too few of.
COPIES = {
    "call_center": 3,
    "promotion": 6,
    "reason": 40,
    "store": 12,
    "warehouse": 3,
    "web_page": 6,
    "web_site": 3,
}


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB that knows TPC-DS; the caller closes it."""
    return duck.with_extensions("tpcds")


def schemas(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Schema]:
    """The columns of every table; creates them."""
    connection.execute("CALL dsdgen(sf = 0)")
    return {name: _rows(connection, name).schema for name in KEYS}


def generate(connection: duckdb.DuckDBPyConnection, asked: list[Wish]) -> dict[str, pa.Table]:
    """The rows of every table."""
    connection.execute(f"CALL dsdgen(sf = {SCALE}, overwrite = true)")
    made: dict[str, list[Row]] = {}
    aim = Aim(asked)
    found = {}
    # What is referred to comes before what refers to it.
    for name, key in KEYS.items():
        taken = _rows(connection, name)
        rows = _copied(name, taken.to_pylist())
        _deal(name, rows, made)
        random = Random(f"rows of {name}")
        if name in FACTS:
            for row in rows:
                aim.fact(name, row)
        elif name not in COMPLETE:
            aim.dimension(name, rows, random)
        if name == "catalog_sales":
            _relate(rows, made["store_returns"], random)
        if name == "store_sales":
            _give_prices(rows)
        made[name] = list({tuple(row[column] for column in key): row for row in rows}.values())
        aim.learn(name, made[name])
        found[name] = pa.Table.from_pylist(made[name], schema=taken.schema)
    return found


def load(lake: tailrace.Lake, rows: Mapping[str, pa.Table]) -> None:
    """Create the tables in `main`, and append their rows."""
    for name, key in KEYS.items():
        lake.create_table(name, rows[name].schema, primary_key=key).append(rows[name])


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    condition = TAKEN.get(name, "true")
    return connection.execute(f"FROM {name} WHERE {condition} ORDER BY ALL").to_arrow_table()


def _copied(name: str, rows: list[Row]) -> list[Row]:
    """Enough rows, with keys and names of their own."""
    (key, *others) = KEYS[name]
    if others:
        return rows
    label = key.replace("_sk", "_id")
    more = range(len(rows) + 1, COPIES.get(name, 0) + 1)
    copies = [{**rows[0], key: n, label: f"{rows[0][label][:-3]}{n:03}"} for n in more]
    return [*rows, *copies]


def _deal(name: str, rows: list[Row], made: Mapping[str, list[Row]]) -> None:
    """Let what columns refer to be there; equal ones stay equal, so returns find their sales."""
    for column, target in references(name, rows[0]):
        if target == "date_dim":
            continue
        (key,) = KEYS[target]
        there = [row[key] for row in made[target]]
        for row in rows:
            if row[column] is not None:
                row[column] = there[row[column] % len(there)]


def _give_prices(sales: list[Row]) -> None:
    """Let nothing be free: a query divides by what was sold on a day, which may be one thing."""
    for row in sales:
        if row["ss_sales_price"] is not None:
            row["ss_sales_price"] = max(row["ss_sales_price"], Decimal("0.01"))


def _relate(sales: list[Row], returns: list[Row], random: Random) -> None:
    """Let some who gave an item back to a store order it from the catalog later."""
    for row in sales:
        back = random.choice(returns)
        if random.random() < 0.2 and back["sr_returned_date_sk"] is not None:
            row["cs_item_sk"] = back["sr_item_sk"]
            row["cs_bill_customer_sk"] = back["sr_customer_sk"]
            row["cs_sold_date_sk"] = back["sr_returned_date_sk"] + random.randrange(90)
            row["cs_ship_date_sk"] = row["cs_sold_date_sk"] + random.randrange(1, 120)
