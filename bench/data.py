"""Made-up rows: the same for the same numbers, in Spark and in Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ids = npt.NDArray[np.int64]

ORDERS = {
    "id": "bigint",
    "customer": "string",
    "amount": "decimal(12,2)",
    "price": "double",
    "ts": "timestamp",
    "note": "string",
}
LINE_ITEMS = {
    "order_id": "bigint",
    "line": "int",
    "part": "bigint",
    "quantity": "int",
    "price": "decimal(12,2)",
    "discount": "double",
    "flag": "string",
    "shipped": "date",
    "mode": "string",
    "comment": "string",
}
LINE_ITEM_KEY = ["order_id", "line"]

_CUSTOMERS = pa.array([f"customer-{n:06d}" for n in range(20_000)])
_WORDS = pa.array(["left at the door", "call before", "fragile", "gift", "return", "express"])


def orders_frame(spark: SparkSession, rows: int, *, files: int) -> DataFrame:
    """Orders numbered from 0, in so many partitions."""
    return spark.range(0, rows, 1, files).selectExpr(
        "id",
        "concat('customer-', lpad(pmod(xxhash64(id, 1), 20000), 6, '0')) AS customer",
        "cast(pmod(xxhash64(id, 2), 10000000) / 100 AS decimal(12,2)) AS amount",
        "pmod(xxhash64(id, 3), 100000000) / 1e4 AS price",
        "timestamp_micros(1700000000000000 + id * 1000000) AS ts",
        "concat('order ', hex(xxhash64(id, 4)), ' left at the door') AS note",
    )


def orders_rows(ids: Ids, *, version: int = 0) -> pa.Table:
    """Orders with these numbers; another version differs in everything but the number."""
    drawn = (ids * 2_654_435_761 + version * 40_503) % 4_294_967_291
    cents = pa.array(drawn % 10_000_000).cast(pa.decimal128(19, 0))
    amounts = pc.multiply(cents, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(12, 2))
    seconds = 1_700_000_000 + ids + version
    return pa.table(
        {
            "id": ids,
            "customer": _CUSTOMERS.take(pa.array(drawn % len(_CUSTOMERS))),
            "amount": amounts,
            "price": drawn / 1e4,
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC")),
            "note": pc.binary_join_element_wise(
                "order",
                pa.array(drawn).cast(pa.string()),
                _WORDS.take(pa.array(drawn % len(_WORDS))),
                " ",
            ),
        }
    )


def orders_batches(rows: int, batch: int) -> Iterator[pa.Table]:
    """Orders numbered from 0 in pieces."""
    for start in range(0, rows, batch):
        yield orders_rows(np.arange(start, min(start + batch, rows)))


def line_items_frame(spark: SparkSession, rows: int, *, files: int) -> DataFrame:
    """Line items, four to an order, not in the order of their key."""
    # An odd factor modulo a power of two visits every number once.
    size = 1 << max(4, (rows - 1).bit_length())
    numbers = spark.range(0, size, 1, files).selectExpr(f"(id * 1103515245) % {size} AS n")
    return numbers.where(f"n < {rows}").selectExpr(
        "n div 4 AS order_id",
        "cast(n % 4 AS int) AS line",
        "pmod(xxhash64(n, 1), 200000) AS part",
        "cast(1 + pmod(xxhash64(n, 2), 50) AS int) AS quantity",
        "cast(pmod(xxhash64(n, 3), 10000000) / 100 AS decimal(12,2)) AS price",
        "pmod(xxhash64(n, 4), 11) / 100D AS discount",
        "element_at(array('A', 'N', 'R'), cast(1 + pmod(xxhash64(n, 5), 3) AS int)) AS flag",
        "date_add(date'1992-01-01', cast(pmod(xxhash64(n, 6), 2500) AS int)) AS shipped",
        "element_at(array('AIR', 'MAIL', 'RAIL', 'SHIP', 'TRUCK'),"
        " cast(1 + pmod(xxhash64(n, 7), 5) AS int)) AS mode",
        "concat('carefully ', hex(xxhash64(n, 8)), ' packed') AS comment",
    )


def recent_ids(draw: np.random.Generator, newest: int, count: int, *, among: int) -> Ids:
    """Numbers to upsert: half of them new, half out of the latest that there are."""
    old = draw.choice(np.arange(max(0, newest - among), newest), count // 2, replace=False)
    return np.concatenate([old, np.arange(newest, newest + count - count // 2)])
