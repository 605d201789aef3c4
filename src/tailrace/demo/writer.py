"""The second process of the demo: it sells, ships, reprices and reviews, a few commits a second.

    python -m tailrace.demo.writer LAKE COMMITS_PER_SECOND

The first line of its standard input says where it begins (`Start`); each commit is a line of JSON
on its standard output (`Commit`). It ends when its input does, which is also what happens when
the process that started it is gone, however that ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

from tailrace.demo import words
from tailrace.demo.shop import (
    CUSTOMERS,
    LINES,
    MOST_LINES,
    ORDERS,
    PRODUCTS,
    REVIEWS,
    STATUSES,
    falling,
)
from tailrace.errors import ConflictError
from tailrace.lake import Lake, connect

# How often each kind of change comes, of a hundred.
_CHANCES = {
    "order": 40,
    "status": 20,
    "cancel": 5,
    "price": 6,
    "customer": 3,
    "product": 4,
    "review": 14,
    "edit": 5,
    "withdrawal": 3,
}


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the writer has to know of the shop."""

    seed: int
    newest_order: int
    newest_customer: int
    newest_review: int
    orders: list[list[Any]]  # some that are under way: id, customer, status, when it was placed
    products: list[list[Any]]  # id, name, category, price
    reviews: list[list[Any]]  # some: id, product


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of the writer."""

    snapshot: int
    at: float  # seconds since 1970
    kind: str
    tables: tuple[str, ...]
    text: str  # what happened, for people


class Trade:
    """What happens in the shop, by chance, but the same for the same start."""

    def __init__(self, lake: Lake, start: Start) -> None:
        self._lake, self._random = lake, Random(start.seed)  # noqa: S311  (no secrets)
        self._order, self._customer = start.newest_order, start.newest_customer
        self._review, self._reviews = start.newest_review, [*start.reviews]
        self._open = [
            dict(zip(("id", "customer_id", "status", "placed_at"), row, strict=True))
            for row in start.orders
        ]
        for order in self._open:
            order["placed_at"] = datetime.fromisoformat(order["placed_at"])
        self._products = [
            _product(number, name, category, Decimal(price))
            for number, name, category, price in start.products
        ]
        self._by_id = {product["id"]: product for product in self._products}
        self._wanted = list(falling(len(self._products)))
        self._kinds: Mapping[str, Callable[[], tuple[int, tuple[str, ...], str]]] = {
            "order": self._sell,
            "status": self._advance,
            "cancel": self._cancel,
            "price": self._reprice,
            "customer": self._greet,
            "product": self._list_new,
            "review": self._write_review,
            "edit": self._edit_review,
            "withdrawal": self._withdraw_review,
        }

    def step(self) -> Commit:
        """Make one commit."""
        (kind,) = self._random.choices(list(_CHANCES), list(_CHANCES.values()))
        if kind in {"status", "cancel"} and not self._open:
            kind = "order"
        if kind in {"edit", "withdrawal"} and not self._reviews:
            kind = "review"
        snapshot, tables, text = self._kinds[kind]()
        return Commit(snapshot=snapshot, at=time.time(), kind=kind, tables=tables, text=text)

    def _sell(self) -> tuple[int, tuple[str, ...], str]:
        """A new order with its lines, in one transaction."""
        self._order += 1
        order = {
            "id": self._order,
            "customer_id": self._random.randint(1, self._customer),
            "status": STATUSES[0],
            "placed_at": datetime.now(UTC),
        }
        bought = self._random.choices(
            self._products, self._wanted, k=self._random.randint(1, MOST_LINES)
        )
        lines = [
            {
                "order_id": self._order,
                "line": number,
                "product_id": product["id"],
                "quantity": self._random.randint(1, 4),
                "price": product["price"],
            }
            for number, product in enumerate(bought, start=1)
        ]
        with self._lake.transaction() as txn:
            txn.table(ORDERS).append([order])
            txn.table(LINES).append(lines)
        self._open.append(order)
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        text = f"order {self._order}: {lines[0]['quantity']} {bought[0]['name']}{more}"
        return txn.snapshot, (ORDERS, LINES), text

    def _advance(self) -> tuple[int, tuple[str, ...], str]:
        """Some orders are paid, shipped or delivered: an upsert."""
        picked = self._random.sample(self._open, min(len(self._open), self._random.randint(1, 3)))
        after = [{**order, "status": _next(order["status"])} for order in picked]
        snapshot = self._lake.table(ORDERS).upsert(after)
        assert snapshot is not None
        gone = {order["id"] for order in picked}
        self._open = [order for order in self._open if order["id"] not in gone]
        self._open += [order for order in after if order["status"] != STATUSES[-1]]
        text = ", ".join(f"order {order['id']} is {order['status']}" for order in after)
        return snapshot, (ORDERS,), text

    def _cancel(self) -> tuple[int, tuple[str, ...], str]:
        """An order is deleted with its lines, in one transaction."""
        order = self._random.choice(self._open)
        lines = [{"order_id": order["id"], "line": n} for n in range(1, MOST_LINES + 1)]
        with self._lake.transaction() as txn:
            txn.table(ORDERS).delete([order])
            txn.table(LINES).delete(lines)  # keys that do not exist are fine
        self._open.remove(order)
        return txn.snapshot, (ORDERS, LINES), f"order {order['id']} is canceled"

    def _reprice(self) -> tuple[int, tuple[str, ...], str]:
        product = self._random.choice(self._products)
        factor = Decimal(self._random.randint(85, 115)) / 100
        price = max(Decimal(1), (product["price"] * factor).quantize(Decimal("0.01")))
        snapshot = self._lake.table(PRODUCTS).upsert([{**product, "price": price}])
        assert snapshot is not None
        product["price"] = price
        return snapshot, (PRODUCTS,), f"{product['name']} costs {price} now"

    def _greet(self) -> tuple[int, tuple[str, ...], str]:
        customer = {
            "id": self._customer + 1,
            "name": f"{self._random.choice(words.FIRST_NAMES)} "
            f"{self._random.choice(words.LAST_NAMES)}",
            "city": self._random.choice(words.CITIES),
            "since": datetime.now(UTC).date(),
        }
        snapshot = self._lake.table(CUSTOMERS).append([customer])
        assert snapshot is not None
        self._customer += 1
        return snapshot, (CUSTOMERS,), f"{customer['name']} from {customer['city']} is new"

    def _list_new(self) -> tuple[int, tuple[str, ...], str]:
        """A new product, with a vector that says what it is like."""
        category = self._random.choice(list(words.CATEGORIES))
        cheapest, things = words.CATEGORIES[category]
        name = f"{self._random.choice(words.MADE_OF)} {self._random.choice(things).lower()}"
        number = max(self._by_id) + 1
        price = Decimal(cheapest * self._random.randint(1, 4)) - Decimal("0.05")
        product = _product(number, name, category, price)
        snapshot = self._lake.table(PRODUCTS).append([product])
        assert snapshot is not None
        self._by_id[number] = product
        self._products.append(product)
        self._wanted = list(falling(len(self._products)))
        return snapshot, (PRODUCTS,), f"{name} is new in the shop"

    def _write_review(self) -> tuple[int, tuple[str, ...], str]:
        (product,) = self._random.choices(self._products, self._wanted)
        stars, text = words.review(self._random, product["name"])
        row = {"id": self._review + 1, "product_id": product["id"], "stars": stars, "text": text}
        snapshot = self._lake.table(REVIEWS).append([row])
        assert snapshot is not None
        self._review += 1
        self._reviews.append([self._review, product["id"]])
        return snapshot, (REVIEWS,), f"{stars} stars: {text}"

    def _edit_review(self) -> tuple[int, tuple[str, ...], str]:
        """Somebody has changed their mind: an upsert."""
        number, product = self._random.choice(self._reviews)
        stars, text = words.review(self._random, self._by_id[product]["name"])
        row = {"id": number, "product_id": product, "stars": stars, "text": text}
        snapshot = self._lake.table(REVIEWS).upsert([row])
        assert snapshot is not None
        return snapshot, (REVIEWS,), f"review {number} says now: {text}"

    def _withdraw_review(self) -> tuple[int, tuple[str, ...], str]:
        review = self._random.choice(self._reviews)
        snapshot = self._lake.table(REVIEWS).delete([{"id": review[0]}])
        assert snapshot is not None
        self._reviews.remove(review)
        return snapshot, (REVIEWS,), f"review {review[0]} is withdrawn"


def _product(number: int, name: str, category: str, price: Decimal) -> dict[str, Any]:
    likeness = words.vector(name, category)
    return {"id": number, "name": name, "category": category, "price": price, "likeness": likeness}


def _next(status: str) -> str:
    return STATUSES[STATUSES.index(status) + 1]


def main(place: str, rate: float) -> None:
    """Trade until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    first = sys.stdin.readline()
    if not first:
        return
    ended, parent = threading.Event(), os.getppid()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    start = Start(**json.loads(first))
    pauses = Random(start.seed + 1)  # noqa: S311  (no secrets)
    with connect(place) as lake:
        trade, due = Trade(lake, start), time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())) and os.getppid() == parent:
            try:
                done = trade.step()
            except ConflictError:
                continue  # somebody else writes to this lake, too
            print(json.dumps(asdict(done)), flush=True)
            # Never faster to make up for a slow time: that would only make it slower.
            due = max(due, time.monotonic() - 1) + pauses.uniform(0.5, 1.5) / rate


if __name__ == "__main__":
    try:
        main(sys.argv[1], float(sys.argv[2]))
    except BrokenPipeError:  # nobody listens any more
        os._exit(0)
