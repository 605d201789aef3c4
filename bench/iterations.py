"""Eight jobs in one iteration against one: what is read, and how long it takes.

A million rows change. The consumers are light: each adds up a column of some of the changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import tailrace
from bench import report, timing
from bench.bench import Bench
from bench.data import ORDERS, orders_frame
from bench.report import Row

ROWS, JOBS = 1_000_000, 8
# The JVM takes a while to compile what it runs often.
WARM_UP, ROUNDS = 3, 5


@tailrace.consumer("bench_light")
def light(changes: tailrace.Changes, _txn: tailrace.Transaction, job: Any) -> None:
    part = int(job.name.removeprefix("job"))
    changes.inserts.where(f"id % {JOBS} = {part}").agg({"price": "sum"}).collect()


# Parquet's vectored reads pass Hadoop's count by.
UNCOUNTED = "parquet.hadoop.vectored.io.enabled"


def measure(bench: Bench) -> Iterator[Row]:
    bench.spark.conf.set(UNCOUNTED, "false")
    try:
        yield from _measure(bench)
    finally:
        bench.spark.conf.unset(UNCOUNTED)


def _measure(bench: Bench) -> Iterator[Row]:
    rows = bench.size(ROWS)
    read: dict[str, list[int]] = {"one": [], "eight": []}
    with bench.lake() as (one, _), bench.lake() as (eight, _):
        lakes = {"one": (one, 1), "eight": (eight, JOBS)}
        for lake, jobs in lakes.values():
            lake.create_table("orders", ORDERS)
            for number in range(jobs):
                spec = {"consumer": {"kind": "bench_light"}}
                lake.jobs.register("orders", f"job{number}", spec)
            lake.run_until_fresh()

        def contestant(name: str) -> Any:
            lake, _ = lakes[name]

            def ready(_: int) -> Any:
                lake.table("orders").append(orders_frame(bench.spark, rows, files=2))

                def run() -> None:
                    before = _bytes_read(bench)
                    lake.run_until_fresh()
                    read[name].append(_bytes_read(bench) - before)

                return run

            return ready

        taken = timing.alternate(
            ROUNDS, warm_up=WARM_UP, one=contestant("one"), eight=contestant("eight")
        )
        for lake, jobs in lakes.values():
            tails = [d for d in lake.jobs.history(limit=10_000) if d.kind == "tail"]
            assert len(tails) == jobs * (ROUNDS + WARM_UP)
            assert all(done.rows_read == rows for done in tails)
    bytes_one, bytes_eight = (sorted(read[name])[len(read[name]) // 2] for name in read)
    yield Row(
        what=f"bytes read by {JOBS} jobs in one iteration, {report.count(rows)} changed rows",
        measured=f"{bytes_eight / 2**20:.1f} MB",
        compared=f"by one job {bytes_one / 2**20:.1f} MB",
        ratio=bytes_eight / bytes_one,
        target=f"1.0{report.TIMES}",
        met=bytes_eight / bytes_one < 1.05,
    )
    yield report.relative(
        f"iteration of {JOBS} light jobs, {report.count(rows)} changed rows",
        taken["eight"],
        taken["one"],
        to="of one job",
        most=1.5,
    )


def _bytes_read(bench: Bench) -> int:
    """What Spark has read of files so far, by Hadoop's own count: no shuffles, no caches."""
    time.sleep(0.05)  # the last task's end
    jvm: Any = bench.spark.sparkContext._jvm
    statistics = jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
    return sum(one.getBytesRead() for one in statistics if one.getScheme() == "file")
