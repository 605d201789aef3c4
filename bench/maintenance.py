"""Thousands of small commits under a view and an index, with and without maintenance.

Commits of ten rows go on as fast as they can, while a node in the same process keeps a view and a
full-text index fresh and, unless told otherwise, compacts. After the first hundred and after the
last, everything is brought up to date, and the same things are done a few times.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tailrace
from bench import report, timing
from bench.bench import Bench
from bench.report import Row

COMMITS, WITHOUT, FIRST, ROWS, ROUNDS = 10_000, 1_500, 100, 10, 9
# Rows that commits change: half of them are new.
KEYS = 60_000
COMPACTED, SMALL_FILES = 5_000_000, 500
COLUMNS = {"id": "bigint", "customer": "string", "amount": "decimal(12,2)", "note": "string"}
QUERY = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
WORDS = ("left", "door", "call", "before", "fragile", "gift", "return", "express", "late", "early")


def measure(bench: Bench) -> Iterator[Row]:
    yield from _small_commits(bench)
    yield from _rewrite(bench)


# --- small commits ------------------------------------------------------------------------------


class Shop:
    """A table with a view and an index, and commits to it."""

    def __init__(self, lake: tailrace.Lake) -> None:
        self.lake, self._random = lake, Random(1)
        self.orders = lake.create_table("orders", COLUMNS, primary_key="id")
        self.commit()
        self.view = lake.create_view("main.totals", QUERY)
        self.index = lake.create_index("orders", "notes", using="fulltext", columns=["note"])
        lake.run_until_fresh()

    def rows(self) -> list[dict[str, Any]]:
        random = self._random
        return [
            {
                "id": number,
                "customer": f"customer {number % 500}",
                "amount": Decimal(random.randrange(10_000)) / 100,
                "note": " ".join(random.choices(WORDS, k=4)),
            }
            for number in random.sample(range(KEYS), ROWS)
        ]

    def commit(self) -> None:
        self.orders.upsert(self.rows())

    def objects(self) -> int:
        """How many objects are visible at the newest snapshot, of the table and of the view."""
        runtime, newest = self.lake.runtime, self.lake.snapshot
        count = 0
        for name in ("main.orders", str(self.view.status().table)):
            info = runtime.mirror.find_table(*name.split(".", 1), newest, runtime.tenant)
            files = [] if info is None else runtime.mirror.data_files(info, newest)
            count += sum(2 if file.deletes else 1 for file in files)
        return count


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Seconds, at the median."""

    upsert: float
    refresh: float
    read: float
    search: float

    @staticmethod
    def of(shop: Shop) -> Taken:
        times: dict[str, list[float]] = {"upsert": [], "refresh": [], "read": [], "search": []}
        for _ in range(ROUNDS):
            times["upsert"].append(timing.seconds(shop.commit))
            times["refresh"].append(timing.seconds(shop.view.refresh))
            shop.lake.run_until_fresh()
            times["read"].append(timing.seconds(shop.orders.to_arrow))
            times["search"].append(
                timing.seconds(lambda: shop.index.search("fragile door", freshness="latest"))
            )
        return Taken(**{name: statistics.median(some) for name, some in times.items()})


def _small_commits(bench: Bench) -> Iterator[Row]:
    commits, without = bench.size(COMMITS), bench.size(WITHOUT)
    with _shop(bench, maintenance_workers=1) as shop:
        after_few, after_all, waits, memory = _go_on(shop, commits)
        yield from _compared(f"after {report.count(commits)} commits", after_few, after_all)
        yield Row(
            what="… objects visible at the end, of the table and the view",
            measured=report.count(shop.objects()),
            target="≤ 200",
            met=shop.objects() <= 200,
        )
        yield from _scan(shop)
        yield Row(
            what="… memory of the process after a tenth of them, and at the end",
            measured=f"{memory[1]:.0f} MB",
            compared=f"{memory[0]:.0f} MB",
            ratio=memory[1] / memory[0],
            target=f"≤ 1.1{report.TIMES}",
            met=memory[1] / memory[0] <= 1.1,
        )
    with _shop(bench, maintenance_workers=0) as shop:
        after_few, after_all, plain, _ = _go_on(shop, without)
        title = f"after {report.count(without)} commits without maintenance"
        yield from _compared(title, after_few, after_all, target=None)
    late = [float(np.percentile(some[:without], 99)) for some in (waits, plain)]
    yield report.relative(
        f"a commit, the slowest of 100 of the first {report.count(without)}",
        late[0],
        late[1],
        to="without maintenance",
        most=1.5,
    )


@contextmanager
def _shop(bench: Bench, *, maintenance_workers: int) -> Iterator[Shop]:
    settings = tailrace.Settings(maintenance_workers=maintenance_workers)
    with (
        bench.directory() as place,
        tailrace.connect(place, spark=bench.spark, settings=settings) as lake,
    ):
        yield Shop(lake)


def _go_on(shop: Shop, commits: int) -> tuple[Taken, Taken, list[float], tuple[float, float]]:
    """What things take after some commits, and after all; how long each commit took; memory."""
    waits: list[float] = []
    memory: list[float] = []

    def commit(count: int) -> None:
        with shop.lake.serving():
            for _ in range(count):
                waits.append(timing.seconds(shop.commit))
                if len(waits) == max(1, commits // 10):
                    memory.append(_memory())
            shop.index.wait(timeout=600)
            shop.lake.jobs.wait("main.totals", "view", timeout=600)

    first = min(FIRST, commits)
    commit(first)
    after_few = Taken.of(shop)
    commit(commits - first)
    after_all = Taken.of(shop)
    return after_few, after_all, waits, (memory[0], _memory())


def _memory() -> float:
    """What the process holds now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _compared(title: str, first: Taken, last: Taken, target: float | None = 1.3) -> Iterator[Row]:
    for what in ("upsert", "refresh", "read", "search"):
        ours, theirs = getattr(last, what), getattr(first, what)
        yield Row(
            what=f"{what} {title}",
            measured=report.duration(ours),
            compared=f"after {FIRST} {report.duration(theirs)}",
            ratio=ours / theirs,
            target="" if target is None else f"≤ {target:g}{report.TIMES}",
            met=None if target is None else ours / theirs <= target,
        )


def _scan(shop: Shop) -> Iterator[Row]:
    """All rows, and the same rows in a table to which they were written at once."""
    again = shop.lake.create_table("at_once", COLUMNS, primary_key="id")
    again.append(shop.orders.to_arrow())
    taken = timing.alternate(
        ROUNDS, ours=lambda _: shop.orders.to_arrow, theirs=lambda _: again.to_arrow
    )
    yield report.relative(
        "… all rows read", taken["ours"], taken["theirs"], to="written at once", most=1.3
    )


# --- one large rewrite --------------------------------------------------------------------------


def _rewrite(bench: Bench) -> Iterator[Row]:
    """Many small files into few, against Spark reading, sorting and writing the same."""
    rows = bench.size(COMPACTED)
    ids = np.random.default_rng(1).permutation(rows)
    with bench.lake() as (lake, place):
        from bench import data

        table = lake.create_table("orders", data.ORDERS, primary_key="id")
        for some in np.array_split(ids, SMALL_FILES):
            table.append(data.orders_rows(np.sort(some)))
        files = [f"{place}/data/{path}" for path in lake.runtime.storage.list()]
        plain = timing.seconds(
            lambda: (
                bench.spark.read.parquet(*files)
                .repartitionByRange("id")
                .sortWithinPartitions("id")
                .write.parquet(f"{place}/plain")
            )
        )
        done: Sequence[Any] = []

        def ours() -> None:
            nonlocal done
            done = lake.maintain("orders", full=True)

        taken = timing.seconds(ours)
        into = sum(one.into or 0 for one in done)
    yield report.relative(
        f"compaction of {report.count(rows)} rows in {SMALL_FILES} files into {into}",
        taken,
        plain,
        to="spark.read.parquet, sort, write",
        most=1.3,
    )
