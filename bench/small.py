"""What a small change costs: processor time, and what is asked of the catalog.

A commit appends five orders and changes one; a node then brings one view up to date: it looks,
claims, works and commits. A node is driven step by step, so that nothing else runs meanwhile.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

import tailrace
from bench import report
from bench.bench import Bench
from bench.report import Row
from tests.support import small_shop
from tests.support.proxy import proxy_to
from tests.support.round_trips import Counter
from tests.support.small_shop import SmallShop
from tests.support.steps import SteppedNode, stepped_node

ORDERS, CUSTOMERS, ROUNDS, WARM_UP = 50_000, 1_000, 30, 8
VIEWS, BUSY_VIEWS, BUSY_SECONDS = 200, 50, 10
DELAY = 0.002  # seconds more for a round trip to PostgreSQL
STARTS = 8


def measure(bench: Bench) -> Iterator[Row]:
    for catalog in ("SQLite", "PostgreSQL"):
        yield from _changes(bench, catalog)
    yield from _larger(bench)
    yield from _delayed(bench)
    yield from _siblings(bench)
    yield from _busy(bench)
    yield from _starts(bench)


# --- one change ---------------------------------------------------------------------------------


@dataclass
class Taken:
    """What several rounds of the same took."""

    processor: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def add(self, counter: Counter, action: Callable[[], object]) -> None:
        asked, processor, wall = counter.total, time.process_time(), time.perf_counter()
        action()
        self.processor.append(time.process_time() - processor)
        self.wall.append(time.perf_counter() - wall)
        self.asked.append(counter.total - asked)


def _rounds(shop: SmallShop, node: SteppedNode, counter: Counter) -> tuple[Taken, Taken]:
    """What commits, and the refreshes that follow them, take."""
    commits, refreshes = Taken(), Taken()
    for number in range(-WARM_UP, ROUNDS):
        commit, refresh = (commits, refreshes) if number >= 0 else (Taken(), Taken())
        commit.add(counter, shop.commit)
        refresh.add(counter, node.step)
    return commits, refreshes


def _lake(
    bench: Bench, stack: ExitStack, catalog: str, *, delay: float = 0.0
) -> tuple[tailrace.Lake, Counter]:
    """A new lake without Spark, and what is asked of its catalog."""
    place = stack.enter_context(bench.directory())
    if catalog == "SQLite":
        lake = stack.enter_context(tailrace.connect(place))
        return lake, Counter(lake, None)
    url = sa.make_url(bench.postgres.url(bench.postgres.create_database()))
    assert url.port is not None
    proxy = stack.enter_context(proxy_to(url.port, delay=delay))
    through = url.set(port=proxy.port).render_as_string(hide_password=False)
    lake = stack.enter_context(tailrace.connect(through, data=place))
    return lake, Counter(lake, proxy)


def _fresh_view(
    bench: Bench, stack: ExitStack, query: str, catalog: str, *, orders: int, delay: float = 0.0
) -> tuple[Taken, Taken]:
    lake, counter = _lake(bench, stack, catalog, delay=delay)
    shop = SmallShop(lake, orders=orders, customers=CUSTOMERS)
    lake.create_view("v", query)
    node = stack.enter_context(stepped_node(lake))
    node.until_fresh()
    return _rounds(shop, node, counter)


# The most that a commit, a filter and a join may take: seconds, and statements or round trips.
LIMITS = {
    "SQLite": {"commit": (0.012, 16), "filter": (0.025, 26), "join": (0.040, 26)},
    "PostgreSQL": {"commit": (0.012, 12), "filter": (0.025, 12), "join": (0.040, 12)},
}


def _changes(bench: Bench, catalog: str) -> Iterator[Row]:
    taken: dict[str, Taken] = {}
    for name, query in (("filter", small_shop.FILTER), ("join", small_shop.JOIN)):
        with ExitStack() as stack:
            taken["commit"], taken[name] = _fresh_view(
                bench, stack, query, catalog, orders=bench.size(ORDERS)
            )
    named = {"commit": "small commit", "filter": "refresh of a filter", "join": "refresh of a join"}
    words = "statements" if catalog == "SQLite" else "round trips"
    for name, label in named.items():
        seconds, most = LIMITS[catalog][name]
        wall = report.duration(statistics.median(taken[name].wall))
        yield report.absolute(
            f"{label}, {catalog}: CPU",
            statistics.median(taken[name].processor),
            most=seconds,
            compared=f"wall {wall}",
        )
        asked = taken[name].asked
        yield Row(
            what=f"{label}, {catalog}: {words}",
            measured=f"{statistics.median(asked):g}",
            compared=f"most {max(asked)}",
            target=f"≤ {most}",
            met=statistics.median(asked) <= most,
        )


def _larger(bench: Bench) -> Iterator[Row]:
    times = []
    for factor in (1, 10):
        with ExitStack() as stack:
            orders = bench.size(ORDERS) * factor
            _, taken = _fresh_view(bench, stack, small_shop.JOIN, "SQLite", orders=orders)
            times.append(statistics.median(taken.processor))
    what = "refresh of a join, ten times the table: CPU"
    yield report.relative(what, times[1], times[0], to="the table", most=1.3)


def _delayed(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        _, taken = _fresh_view(
            bench, stack, small_shop.FILTER, "PostgreSQL", orders=bench.size(ORDERS), delay=DELAY
        )
    what = f"refresh of a filter, PostgreSQL {report.duration(DELAY)} away"
    yield report.absolute(what, statistics.median(taken.wall), most=0.08)


# --- many views ---------------------------------------------------------------------------------


def _fresh_views(
    bench: Bench, stack: ExitStack, count: int
) -> tuple[SmallShop, Counter, SteppedNode]:
    """A shop under so many views, all of which change with each order, and their node."""
    lake, counter = _lake(bench, stack, "SQLite")
    shop = SmallShop(lake, orders=5_000, customers=CUSTOMERS)
    for number in range(count):
        lake.create_view(f"v{number}", f"SELECT id, amount + {number} AS amount FROM orders")
    node = stack.enter_context(stepped_node(lake))
    node.until_fresh()
    return shop, counter, node


def _siblings(bench: Bench) -> Iterator[Row]:
    count = bench.size(VIEWS)
    with ExitStack() as stack:
        shop, counter, node = _fresh_views(bench, stack, count)
        taken = Taken()
        for number in range(4):
            shop.lake.table("orders").upsert([shop.order(number)])
            taken.add(counter, node.until_fresh)
    processor = report.duration(statistics.median(taken.processor[1:]))
    yield report.absolute(
        f"one changed row under {count} views: all fresh",
        statistics.median(taken.wall[1:]),
        most=3.0,
        compared=f"CPU {processor}",
    )


def _busy(bench: Bench) -> Iterator[Row]:
    count = bench.size(BUSY_VIEWS)
    with ExitStack() as stack:
        shop, _, node = _fresh_views(bench, stack, count)
        began, refreshes = time.perf_counter(), 0
        while time.perf_counter() - began < BUSY_SECONDS:
            shop.commit()
            node.until_fresh()
            refreshes += count
        rate = refreshes / (time.perf_counter() - began)
    yield Row(what=f"refreshes a second, {count} views that all change", measured=f"{rate:.0f}")


# --- commands -----------------------------------------------------------------------------------


def _processor_time(*arguments: str) -> float:
    """The user and system time of a process."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(used.ru_utime + used.ru_stime)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code, *arguments]))


def _starts(bench: Bench) -> Iterator[Row]:
    with bench.directory() as place:
        with tailrace.connect(place) as lake:
            lake.create_table("t", {"id": "bigint"})
        libraries = [sys.executable, "-c", "import sqlalchemy, pyarrow"]
        for command in ("tables", "status"):
            program = str(Path(sys.executable).parent / "tailrace")
            ours = [program, command, "--lake", str(place)]
            times = [(_processor_time(*ours), _processor_time(*libraries)) for _ in range(STARTS)]
            own, theirs = (statistics.median(some) for some in zip(*times, strict=True))
            what = f"tailrace {command}: CPU"
            yield report.relative(what, own, theirs, to="import sqlalchemy, pyarrow", most=1.3)
