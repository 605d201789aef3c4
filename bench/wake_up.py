"""What 100,000 jobs on 10,000 tables cost while nothing or little changes.

The tables and jobs are rows copied in the catalog; all jobs are fresh. A wake-up is what a node
does when it is told that something was committed: it ends when the work is handed out.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

import tailrace
from bench import report, timing
from bench.bench import Bench
from bench.changed_tables import copy_tables, create_tables
from bench.report import Row
from tailrace.propagation import tables as t
from tailrace.propagation.node import Node
from tailrace.propagation.runner import Runner
from tailrace.propagation.spec import complete
from tailrace.store import tables as st
from tests.support import children

JOBS, TABLES, CHANGED, ROUNDS = 100_000, 10_000, 100, 20
# Whatever else a node does at intervals is not part of a wake-up.
SETTINGS = tailrace.Settings(
    reconcile_interval=timedelta(hours=1), upkeep_interval=timedelta(hours=1)
)


def measure(bench: Bench) -> Iterator[Row]:
    with bench.directory() as place:
        with tailrace.connect(place / "lake", settings=SETTINGS) as lake:
            yield from _measure(bench, lake, "SQLite")
        with tailrace.connect(place / "empty"):
            pass
        yield _memory(bench, place)
    url = bench.postgres.url(bench.postgres.create_database())
    with (
        bench.directory() as place,
        tailrace.connect(url, data=place, settings=SETTINGS) as lake,
    ):
        yield from _measure(bench, lake, "PostgreSQL")


def _measure(bench: Bench, lake: tailrace.Lake, catalog: str) -> Iterator[Row]:
    tables, jobs = bench.size(TABLES), bench.size(JOBS)
    changed = min(tables, CHANGED)
    create_tables(lake, min(tables, 100))
    copy_tables(lake, min(tables, 100), tables)
    _register(lake, tables, jobs)
    node = Node(lake._runtime, beating=False)
    runner = Runner(lake._runtime, node.id, live=node.live, knows=lambda _: True)
    first = timing.seconds(runner.look)
    assert len(runner.cache.entries) == jobs
    shape = f"{report.count(jobs)} jobs on {report.count(tables)} tables, {catalog}"
    yield Row(what=f"first look of a node: {shape}", measured=report.duration(first))
    gc.collect()
    idle = [timing.seconds(lambda: _nothing(runner)) for _ in range(ROUNDS)]
    yield report.absolute(f"wake-up, nothing changed: {shape}", statistics.median(idle), most=0.005)
    busy = []
    for number in range(ROUNDS):
        with lake.transaction() as txn:
            for table in range(changed):
                txn.table(f"t{table}").append([{"id": number}])
        busy.append(timing.seconds(lambda: _some(runner, changed)))
    yield report.absolute(
        f"wake-up, {changed} tables changed: {shape}",
        statistics.median(busy),
        most=0.2,
        compared=f"the slowest of {ROUNDS} {report.duration(max(busy))}",
    )
    node.close()
    assert lake._runtime.spark.session is None, "a wake-up starts no Spark"


def _nothing(runner: Runner) -> None:
    assert runner.look() == []


def _some(runner: Runner, count: int) -> None:
    works = runner.look()
    assert len(works) == count
    for work in works:
        runner.finished(work)


def _register(lake: tailrace.Lake, tables: int, jobs: int) -> None:
    spec = json.dumps(complete({"consumer": {"kind": "bench"}}).to_dict())
    snapshot, now = lake.snapshot, lake._runtime.clock.now()
    with lake._runtime.database.lock() as connection:
        ids = connection.execute(sa.select(st.own_table.c.table_id)).scalars().all()[:tables]
        rows = [
            {
                "job_id": number,
                "tenant": "default",
                "home": f"main.t{number % tables}",
                "name": f"job {number}",
                "kind": "bench",
                "spec": spec,
                "state": "completed",
                "watermark": snapshot,
                "catches_up": 0,
                "epoch": 0,
                "lsn": number,
                "tries": 0,
                "status": "{}",
                "created_at": now,
            }
            for number in range(1, jobs + 1)
        ]
        connection.execute(sa.insert(t.job), rows)
        connection.execute(
            sa.insert(t.job_source),
            [
                {"job_id": number, "position": 0, "table_id": ids[number % tables]}
                for number in range(1, jobs + 1)
            ],
        )
        connection.execute(sa.update(st.counter).values(value=jobs))


def _memory(bench: Bench, place: Path) -> Row:
    sizes = []
    for name in ("empty", "lake"):
        answer = children.context().Queue()
        child = children.start(_resident, str(place / name), answer)
        sizes.append(answer.get(timeout=300))
        children.join(child)
    grown = (sizes[1] - sizes[0]) / 2**20
    return Row(
        what=f"memory of a node with {report.count(bench.size(JOBS))} registered jobs",
        measured=f"{grown:.0f} MB more",
        compared=f"with none {sizes[0] / 2**20:.0f} MB",
        target="≤ 300 MB",
        met=grown <= 300,
    )


def _resident(place: str, answer: object) -> None:
    """A node's memory after its first look, with what Python has not given back."""
    with tailrace.connect(place) as lake:
        runtime = lake._runtime
        node = Node(runtime, beating=False)
        runner = Runner(runtime, node.id, live=node.live, knows=lambda _: True)
        runner.look()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        answer.put(pages * 4096)  # type: ignore[attr-defined]
