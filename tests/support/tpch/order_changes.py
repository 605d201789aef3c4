"""A part of all orders changes, with their lines: half new ones, a quarter changed, a quarter gone.

Made for large scales: DuckDB computes the rows from what the lake holds, and one transaction
applies them. Recent orders are those with the highest keys, and new ones get keys above all
others. Uniform ones are anywhere, and new ones get keys in the gaps: TPC-H uses 8 of 32 keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.tpch import tables

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    import tailrace

KINDS = ("recent", "uniform")

# Every order in an order that is drawn by the seed.
DRAWN = """
CREATE OR REPLACE TEMP TABLE live AS
SELECT o_orderkey, hash(o_orderkey, {seed}) AS draw FROM lake.orders
"""

# The orders to change and to delete: some of these, in the drawn order.
AMONG = {
    "recent": "SELECT * FROM live ORDER BY o_orderkey DESC LIMIT {old}",
    "uniform": "SELECT * FROM live ORDER BY draw, o_orderkey LIMIT {old}",
}
OLD = """
CREATE OR REPLACE TEMP TABLE old AS
SELECT o_orderkey, row_number() OVER (ORDER BY draw, o_orderkey) <= {changed} AS stays
FROM ({among})
"""

# A new order has the customer, the dates and the lines of another, from anywhere.
NEW_KEY = {
    "recent": """
        (SELECT max(o_orderkey) // 32 + 1 FROM live) * 32 + (number // 8) * 32 + number % 8
    """,
    "uniform": "o_orderkey - o_orderkey % 32 + o_orderkey % 8 + 8 * (1 + (draw % 3)::BIGINT)",
}
NEW = """
CREATE OR REPLACE TEMP TABLE new AS
SELECT min(template) AS template, new_key FROM (
    SELECT o_orderkey AS template, {key} AS new_key FROM (
        SELECT *, row_number() OVER (ORDER BY draw DESC, o_orderkey) - 1 AS number FROM live
        ORDER BY draw DESC, o_orderkey LIMIT 2 * {new}
    )
)
WHERE new_key NOT IN (SELECT o_orderkey FROM live)
GROUP BY new_key
ORDER BY hash(new_key) LIMIT {new}
"""

ORDERS = """
SELECT orders.* REPLACE (
    o_totalprice + (hash(o_orderkey, {seed}) % 10000)::BIGINT AS o_totalprice,
    CASE WHEN o_orderpriority = '1-URGENT' THEN '4-NOT SPECIFIED' ELSE '1-URGENT' END
        AS o_orderpriority,
    concat('changed ', o_comment) AS o_comment
)
FROM lake.orders orders SEMI JOIN (FROM old WHERE stays) USING (o_orderkey)
UNION ALL
SELECT orders.* REPLACE (new_key AS o_orderkey)
FROM lake.orders orders JOIN new ON template = o_orderkey
"""
LINES = """
SELECT lineitem.* REPLACE (
    51 - l_quantity AS l_quantity,
    l_extendedprice + (hash(l_orderkey, {seed}) % 1000)::BIGINT AS l_extendedprice,
    0.10 - l_discount AS l_discount,
    l_shipdate + (hash(l_orderkey, l_linenumber, {seed}) % 21)::INT - 10 AS l_shipdate,
    l_receiptdate + (hash(l_linenumber, l_orderkey, {seed}) % 41)::INT - 20 AS l_receiptdate,
    CASE WHEN l_shipmode = 'MAIL' THEN 'SHIP' ELSE 'MAIL' END AS l_shipmode
)
FROM lake.lineitem lineitem SEMI JOIN (FROM old WHERE stays) ON l_orderkey = o_orderkey
UNION ALL
SELECT lineitem.* REPLACE (new_key AS l_orderkey)
FROM lake.lineitem lineitem JOIN new ON template = l_orderkey
"""
GONE_ORDERS = "SELECT o_orderkey FROM old WHERE NOT stays"
GONE_LINES = """
SELECT l_orderkey, l_linenumber FROM lake.lineitem
SEMI JOIN (FROM old WHERE NOT stays) ON l_orderkey = o_orderkey
"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was done."""

    snapshot: int
    orders: int  # inserted, updated or deleted
    lines: int


def apply(
    lake: tailrace.Lake,
    connection: duckdb.DuckDBPyConnection,
    *,
    fraction: float,
    kind: str,
    seed: int,
) -> Change:
    """Change this part of the orders; `connection` is a DuckDB that has the lake attached."""
    connection.execute(DRAWN.format(seed=int(seed)))
    (count,) = connection.execute("SELECT count(*) FROM live").fetchone() or (0,)
    total = max(4, round(count * fraction))
    new, changed = total // 2, total // 4
    among = AMONG[kind].format(old=total - new)
    connection.execute(OLD.format(changed=changed, among=among))
    connection.execute(NEW.format(key=NEW_KEY[kind], new=new))
    with lake.transaction() as txn:
        orders = _write(
            txn.table("orders"),
            tables.rows(connection, "orders", ORDERS.format(seed=int(seed))),
            connection.execute(GONE_ORDERS).to_arrow_table(),
        )
        lines = _write(
            txn.table("lineitem"),
            tables.rows(connection, "lineitem", LINES.format(seed=int(seed))),
            connection.execute(GONE_LINES).to_arrow_table(),
        )
    return Change(snapshot=txn.snapshot, orders=orders, lines=lines)


def _write(table: tailrace.Table, rows: pa.Table, gone: pa.Table) -> int:
    table.delete(gone)
    table.upsert(rows)
    return int(rows.num_rows + gone.num_rows)
