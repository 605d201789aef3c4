"""What the demo derives from the shop: views, each of another kind, a replica, and two indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.demo.shop import ORDERS, PRODUCTS, REVIEWS, SCHEMA

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Derived:
    """One derived object: what it is called, and what the screen says of it."""

    name: str
    what: str  # the kind of query, in a word or two
    shows: str  # what it is good for
    trigger: str | Mapping[str, Any]
    # The table and name under which its job is registered.
    job: tuple[str, str]
    query: str = ""  # in Spark SQL, over the shop's tables and the views here; none of an index
    is_cheap: bool = True  # reading its rows needs no Spark: true of all without a LIMIT

    @property
    def interval(self) -> str:
        """The pause between its refreshes; empty if each change is followed at once."""
        return "" if isinstance(self.trigger, str) else str(self.trigger["schedule"]["interval"])

    @property
    def rhythm(self) -> str:
        """When it is refreshed, in words."""
        return f"every {self.interval.replace('s', ' s')}" if self.interval else "at each change"


@dataclass(frozen=True, kw_only=True)
class Replica(Derived):
    """A copy of some rows of a table."""

    source: str
    where: str


@dataclass(frozen=True, kw_only=True)
class SearchIndex(Derived):
    """An index of a column."""

    source: str
    using: str
    column: str


def _every(interval: str) -> dict[str, Any]:
    return {"job_type": "periodic", "schedule": {"interval": interval}}


def _view(name: str, **fields: Any) -> Derived:
    full = f"{SCHEMA}.{name}"
    return Derived(name=full, job=(full, "view"), **fields)


def _replica(name: str, *, source: str, where: str, **fields: Any) -> Replica:
    query = f"SELECT * FROM {source} WHERE {where}"  # noqa: S608  (our own names)
    full = f"{SCHEMA}.{name}"
    return Replica(
        name=full,
        what="replica",
        job=(source, name),
        source=source,
        where=where,
        query=query,
        **fields,
    )


def _index(name: str, *, source: str, **fields: Any) -> SearchIndex:
    return SearchIndex(name=f"{source}.{name}", job=(source, name), source=source, **fields)


CITIES = f"{SCHEMA}.cities"
# A view comes after those that it reads.
VIEWS = (
    _view(
        "open_orders",
        what="filter",
        shows="orders that wait to be sent",
        trigger="greedy",
        query="""
            SELECT id, customer_id, status, placed_at
            FROM shop.orders
            WHERE status IN ('placed', 'paid')
        """,
    ),
    _view(
        "revenue",
        what="join + sum",
        shows="what each city spends on each category",
        trigger="default",
        query="""
            SELECT c.city, p.category, count(*) AS lines, sum(l.quantity * l.price) AS revenue
            FROM shop.order_lines l
            JOIN shop.orders o ON o.id = l.order_id
            JOIN shop.customers c ON c.id = o.customer_id
            JOIN shop.products p ON p.id = l.product_id
            GROUP BY c.city, p.category
        """,
    ),
    _view(
        "cities",
        what="view on view",
        shows="the same by city",
        trigger="default",
        query="""
            SELECT city, sum(lines) AS lines, sum(revenue) AS revenue
            FROM shop.revenue
            GROUP BY city
        """,
    ),
    _view(
        "best_sellers",
        what="top 10",
        shows="what sells best, at today's price",
        trigger=_every("5s"),
        is_cheap=False,
        query="""
            SELECT p.id, p.name, p.price, sum(l.quantity) AS sold
            FROM shop.order_lines l
            JOIN shop.products p ON p.id = l.product_id
            GROUP BY p.id, p.name, p.price
            ORDER BY sold DESC, p.id
            LIMIT 10
        """,
    ),
)
REPLICAS = (
    _replica(
        "on_their_way",
        shows="a table of its own with some of the orders",
        trigger=_every("2s"),
        source=ORDERS,
        where="status = 'shipped'",
    ),
)
REVIEW_TEXT = _index(
    "review_text",
    what="full text",
    shows="reviews by the words in them",
    trigger="greedy",
    source=REVIEWS,
    using="fulltext",
    column="text",
)
LOOK_ALIKES = _index(
    "look_alikes",
    what="vectors",
    shows="products that are like another",
    trigger="default",
    source=PRODUCTS,
    using="vector",
    column="likeness",
)
INDEXES = (REVIEW_TEXT, LOOK_ALIKES)
ALL: tuple[Derived, ...] = (*VIEWS, *REPLICAS, *INDEXES)


def create(lake: Lake) -> None:
    """Create what is not there yet."""
    views = set(lake.views())
    for view in VIEWS:
        if view.name not in views:
            lake.create_view(view.name, view.query, trigger=view.trigger)
    for replica in REPLICAS:
        consumer = {"kind": "replica", "table": replica.name, "where": replica.where}
        lake.jobs.register(*replica.job, {"consumer": consumer, "trigger": replica.trigger})
    indexes = {(index.table, index.name) for index in lake.indexes()}
    for index in INDEXES:
        if index.job not in indexes:
            lake.create_index(
                *index.job, using=index.using, columns=index.column, trigger=index.trigger
            )
