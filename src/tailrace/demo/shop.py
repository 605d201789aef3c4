"""The shop's tables, and the rows that they begin with.

Owned here: what the tables are, and how many rows a scale means. Always true: the shop of a scale
has the same rows wherever it is made, and it is all there or not at all: one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.demo import words
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    from tailrace.lake import Lake

SCHEMA = "shop"
CUSTOMERS, PRODUCTS = f"{SCHEMA}.customers", f"{SCHEMA}.products"
ORDERS, LINES = f"{SCHEMA}.orders", f"{SCHEMA}.order_lines"
REVIEWS = f"{SCHEMA}.reviews"
# What an order goes through; one that is canceled is deleted.
STATUSES = ("placed", "paid", "shipped", "delivered")
MOST_LINES = 5  # of an order
SMALLEST, LARGEST = 0.01, 20.0  # scales

_SEED = 8707
TABLES: dict[str, tuple[dict[str, str], list[str]]] = {
    CUSTOMERS: ({"id": "bigint", "name": "string", "city": "string", "since": "date"}, ["id"]),
    PRODUCTS: (
        {
            "id": "bigint",
            "name": "string",
            "category": "string",
            "price": "decimal(10,2)",
            "likeness": "array<float>",
        },
        ["id"],
    ),
    ORDERS: (
        {"id": "bigint", "customer_id": "bigint", "status": "string", "placed_at": "timestamp"},
        ["id"],
    ),
    LINES: (
        {
            "order_id": "bigint",
            "line": "int",
            "product_id": "bigint",
            "quantity": "int",
            "price": "decimal(10,2)",
        },
        ["order_id", "line"],
    ),
    REVIEWS: (
        {"id": "bigint", "product_id": "bigint", "stars": "int", "text": "string"},
        ["id"],
    ),
}
_MONEY = pa.decimal128(10, 2)
_FIRST_DAY = np.datetime64("2025-01-01T00:00:00", "us")
_DAYS = 90


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many there are at the start."""

    customers: int
    products: int
    orders: int
    reviews: int

    @staticmethod
    def of(scale: float) -> Sizes:
        """At scale 1: 5,000 customers, 500 products, 50,000 orders, 10,000 reviews."""
        if not SMALLEST <= scale <= LARGEST:
            raise InvalidError(
                f"the demo's scale goes from {SMALLEST:g} to {LARGEST:g}, because its rows are "
                f"made in memory: {scale:g} is outside"
            )
        return Sizes(
            customers=round(5_000 * scale),
            # A shop that sells ten times as much does not have ten times as many things.
            products=round(500 * sqrt(scale)),
            orders=round(50_000 * scale),
            reviews=round(10_000 * scale),
        )


def is_there(lake: Lake) -> bool:
    """Whether the lake has the shop; one that has something else instead is refused."""
    there = lake.tables()
    is_shop = set(TABLES) <= set(there)
    if there and not is_shop:
        raise InvalidError(
            f"this lake was not made by the demo (it has {', '.join(there[:3])}): "
            "give --keep a new directory"
        )
    return is_shop


def create(lake: Lake, sizes: Sizes) -> dict[str, int]:
    """Make the shop in one transaction; returns how many rows each table has."""
    rows = generate(sizes)
    with lake.transaction() as txn:
        txn.create_schema(SCHEMA)
        for name, (columns, key) in TABLES.items():
            txn.create_table(name, columns, primary_key=key).append(rows[name])
    return {name: table.num_rows for name, table in rows.items()}


def generate(sizes: Sizes) -> dict[str, pa.Table]:
    """The rows of each table."""
    random = np.random.default_rng(_SEED)
    products = _products(sizes.products, random)
    return {
        CUSTOMERS: _customers(sizes.customers, random),
        PRODUCTS: products,
        ORDERS: _orders(sizes, random),
        LINES: _lines(sizes, products, random),
        REVIEWS: _reviews(sizes, products),
    }


def falling(count: int) -> Any:
    """Chances of so many things, each smaller than the one before: some sell, most do not."""
    weights = 1.0 / (np.arange(count) + 0.1 * count + 1)
    return weights / weights.sum()


def money(cents: Any) -> pa.Array:
    """Amounts as the tables have them."""
    whole = pa.array(np.asarray(cents, np.int64)).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar(Decimal("0.01"))).cast(_MONEY)


def _picked(choices: Any, numbers: Any) -> pa.Array:
    return pa.array(choices).take(pa.array(numbers))


def _customers(count: int, random: np.random.Generator) -> pa.Table:
    first = _picked(words.FIRST_NAMES, random.integers(0, len(words.FIRST_NAMES), count))
    last = _picked(words.LAST_NAMES, random.integers(0, len(words.LAST_NAMES), count))
    city = random.choice(len(words.CITIES), count, p=falling(len(words.CITIES)))
    since = np.datetime64(date(2020, 1, 1)) + random.integers(0, 1_800, count)
    return pa.table(
        {
            "id": np.arange(1, count + 1),
            "name": pc.binary_join_element_wise(first, last, " "),
            "city": _picked(words.CITIES, city),
            "since": pa.array(since),
        }
    )


def _products(count: int, random: np.random.Generator) -> pa.Table:
    kinds = [(name, thing) for name, (_, things) in words.CATEGORIES.items() for thing in things]
    products = [(material, *kind) for material in words.MADE_OF for kind in kinds]
    order = random.permutation(max(count, len(products)))[:count]
    # Where there are more products than names, a second one is of another series.
    series = [f" {n // len(products) + 1}" if n >= len(products) else "" for n in order]
    chosen = [products[n % len(products)] for n in order]
    cheapest = np.array([words.CATEGORIES[category][0] for _, category, _ in chosen])
    euros = np.round(cheapest * random.gamma(2.0, 1.2, count) + cheapest)
    names = [
        f"{material} {thing.lower()}{one}"
        for (material, _, thing), one in zip(chosen, series, strict=True)
    ]
    categories = [category for _, category, _ in chosen]
    likeness = [words.vector(*product) for product in zip(names, categories, strict=True)]
    return pa.table(
        {
            "id": np.arange(1, count + 1),
            "name": names,
            "category": categories,
            "price": money(euros * 100 - 5),
            "likeness": pa.array(likeness, pa.list_(pa.float32())),
        }
    )


def _orders(sizes: Sizes, random: np.random.Generator) -> pa.Table:
    count = sizes.orders
    # The last twelfth is still under way, the newest of them only just placed.
    age = 1 - np.arange(count) / count
    status = np.select([age <= 0.02, age <= 0.04, age <= 0.08], [0, 1, 2], 3)
    moments = np.sort(random.integers(0, _DAYS * 86_400, count)).astype("timedelta64[s]")
    return pa.table(
        {
            "id": np.arange(1, count + 1),
            "customer_id": random.integers(1, sizes.customers + 1, count),
            "status": _picked(STATUSES, status),
            "placed_at": pa.array(_FIRST_DAY + moments).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def _lines(sizes: Sizes, products: pa.Table, random: np.random.Generator) -> pa.Table:
    counts = random.integers(1, MOST_LINES + 1, sizes.orders)
    count = int(counts.sum())
    order = np.repeat(np.arange(1, sizes.orders + 1), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)  # where its order's lines begin
    product = random.choice(sizes.products, count, p=falling(sizes.products))
    return pa.table(
        {
            "order_id": order,
            "line": pa.array(np.arange(count) - first + 1, pa.int32()),
            "product_id": product + 1,
            "quantity": pa.array(random.integers(1, 5, count), pa.int32()),
            "price": products.column("price").take(pa.array(product)),
        }
    )


def _reviews(sizes: Sizes, products: pa.Table) -> pa.Table:
    random = Random(_SEED)  # noqa: S311  (no secrets)
    chosen = random.choices(range(sizes.products), falling(sizes.products), k=sizes.reviews)
    names = products.column("name").to_pylist()
    said = [words.review(random, names[product]) for product in chosen]
    return pa.table(
        {
            "id": np.arange(1, sizes.reviews + 1),
            "product_id": np.array(chosen) + 1,
            "stars": pa.array([stars for stars, _ in said], pa.int32()),
            "text": [text for _, text in said],
        }
    )
