"""The demo's shop, small, and what happens in it."""

from __future__ import annotations

import json

import tailrace
from tailrace.demo import shop
from tailrace.demo.writer import Start, Trade

SMALL = shop.Sizes(customers=50, products=20, orders=200, reviews=100)


def trader(lake: tailrace.Lake) -> Trade:
    orders = lake.table(shop.ORDERS).to_arrow().slice(SMALL.orders - 20).to_pylist()
    products = lake.table(shop.PRODUCTS).to_arrow().to_pylist()
    start = Start(
        seed=1,
        newest_order=SMALL.orders,
        newest_customer=SMALL.customers,
        newest_review=SMALL.reviews,
        orders=[[o["id"], o["customer_id"], "paid", o["placed_at"].isoformat()] for o in orders],
        products=[[p["id"], p["name"], p["category"], str(p["price"])] for p in products],
        reviews=[[number, 1] for number in range(SMALL.reviews - 20, SMALL.reviews + 1)],
    )
    return Trade(lake, Start(**json.loads(json.dumps(vars(start)))))
