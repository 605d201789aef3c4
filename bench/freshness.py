"""From a commit of 1,000 changed rows until it is visible in a replica.

Twenty replicas of five tables, on a node in the same process; one commit a second for a minute,
each to the next table. What counts is the time between the two commits, for every replica.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from random import Random

import tailrace
from bench import report
from bench.bench import Bench
from bench.report import Row

TABLES, REPLICAS, ROWS, CHANGED, SECONDS = 5, 4, 100_000, 1_000, 60


def measure(bench: Bench) -> Iterator[Row]:
    with bench.lake() as (lake, _):
        yield from _measure(bench, lake, "SQLite")
    url = bench.postgres.url(bench.postgres.create_database())
    with (
        bench.directory() as place,
        tailrace.connect(url, data=place, spark=bench.spark) as lake,
    ):
        yield from _measure(bench, lake, "PostgreSQL")


def _measure(bench: Bench, lake: tailrace.Lake, catalog: str) -> Iterator[Row]:
    rows, seconds = bench.size(ROWS), bench.size(SECONDS)
    random = Random(1)
    columns = {"id": "bigint", "v": "string", "x": "double"}
    for number in range(TABLES):
        table = lake.create_table(f"t{number}", columns, primary_key="id")
        table.append([{"id": i, "v": f"value {i}", "x": i / 7} for i in range(rows)])
        for copy in range(REPLICAS):
            consumer = {"kind": "replica", "table": f"t{number}_copy{copy}"}
            lake.jobs.register(f"t{number}", f"copy{copy}", {"consumer": consumer})
    lake.run_until_fresh()
    committed: dict[int, tuple[int, float]] = {}
    with lake.serving():
        start = time.monotonic()
        for second in range(seconds):
            time.sleep(max(0.0, start + second - time.monotonic()))
            number = second % TABLES
            chosen = random.sample(range(rows), min(rows, CHANGED))
            snapshot = lake.table(f"t{number}").upsert(
                [{"id": i, "v": f"changed in {second}", "x": second} for i in chosen]
            )
            assert snapshot is not None
            committed[snapshot] = (number, time.time())
        for number in range(TABLES):
            for copy in range(REPLICAS):
                lake.jobs.wait(f"t{number}", f"copy{copy}", timeout=120)
    waits = sorted(_waits(lake, committed))
    assert len(waits) == seconds * REPLICAS
    shape = f"{TABLES * REPLICAS} replicas of {TABLES} tables, a commit a second, {catalog}"
    middle, late = statistics.median(waits), waits[int(len(waits) * 0.99)]
    yield report.absolute(f"commit to visible in a replica, median: {shape}", middle, most=1.5)
    yield report.absolute(f"… the slowest of 100: {catalog}", late, most=5)


def _waits(lake: tailrace.Lake, committed: dict[int, tuple[int, float]]) -> Iterator[float]:
    for number in range(TABLES):
        for copy in range(REPLICAS):
            done = lake.jobs.history(f"t{number}", f"copy{copy}", limit=100_000)
            for snapshot, (table, moment) in committed.items():
                if table == number:
                    first = min(d.ended_at for d in done if d.to_snapshot >= snapshot)
                    yield max(0.0, first.timestamp() - moment)
