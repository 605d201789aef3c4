"""A shop whose table of orders changes by a few rows at a time."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import tailrace

# Sums of doubles depend on their order: groups that change would be computed from all their rows.
ORDERS = {"id": "bigint", "customer": "bigint", "status": "string", "amount": "decimal(12,2)"}
CUSTOMERS = {"id": "bigint", "city": "string"}
FILTER = "SELECT id, customer, amount FROM orders WHERE status = 'open'"
JOIN = """
    SELECT c.city, count(*) AS orders, sum(o.amount) AS total
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city"""


class SmallShop:
    """See the module."""

    def __init__(self, lake: tailrace.Lake, *, orders: int, customers: int) -> None:
        self.lake, self._random = lake, Random(1)
        self._orders, self._customers, self._next = orders, customers, orders
        table = lake.create_table("orders", ORDERS, primary_key="id")
        numbers = range(orders)
        table.append(
            pa.table(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "customer": pa.array([n * 7 % customers for n in numbers], pa.int64()),
                    "status": ["open" if n % 3 else "paid" for n in numbers],
                    "amount": pa.array([n / 8 for n in numbers], pa.float64()).cast(
                        pa.decimal128(12, 2)
                    ),
                }
            )
        )
        lake.create_table("customers", CUSTOMERS, primary_key="id").append(
            [{"id": number, "city": f"city {number % 20}"} for number in range(customers)]
        )

    def order(self, number: int) -> dict[str, Any]:
        """A row of `orders`."""
        customer = self._random.randrange(self._customers)
        status = self._random.choice(["open", "paid"])
        return {"id": number, "customer": customer, "status": status, "amount": Decimal("1.50")}

    def commit(self) -> None:
        """Append five orders and change one, in a transaction."""
        with self.lake.transaction() as txn:
            orders = txn.table("orders")
            orders.append([self.order(self._next + number) for number in range(5)])
            orders.upsert([self.order(self._random.randrange(self._orders))])
        self._next += 5
