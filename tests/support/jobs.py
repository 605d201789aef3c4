"""Consumers and lakes for tests of jobs."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import tailrace
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count(1)

ORDERS = {"id": "bigint", "v": "string"}


def orders(lake: tailrace.Lake, name: str = "orders", rows: int = 5) -> tailrace.Table:
    """A table with a key and some rows."""
    table = lake.create_table(name, ORDERS, primary_key="id")
    if rows:
        table.append([{"id": i, "v": "first"} for i in range(rows)])
    return table


def replica(table: str, **more: Any) -> dict[str, Any]:
    """The spec of a replica."""
    return {"consumer": {"kind": "replica", "table": table}, **more}


def spec(kind: str, job_type: str = "default", **more: Any) -> dict[str, Any]:
    """The spec of a job with a user's consumer."""
    trigger = {"job_type": job_type, "schedule": more.pop("schedule", {})}
    return {"consumer": {"kind": kind}, "trigger": trigger, **more}


def same(lake: tailrace.Lake, one: str, other: str) -> bool:
    """Whether two tables hold the same rows now."""
    return bag(lake.table(one).to_arrow()) == bag(lake.table(other).to_arrow())


class Recorder:
    """A consumer that writes down every change it gets, in a table of the lake.

    Also a switchboard: it can be made to wait, or to fail.
    """

    def __init__(self, lake: tailrace.Lake) -> None:
        number = next(_numbers)
        self.kind = f"recorder_{number}"
        self.table = f"recorded_{number}"
        lake.create_table(self.table, {"change": "string", "id": "bigint", "v": "string"})
        self.lake = lake
        self.runs: list[tuple[str, int | None, int]] = []  # every try: job, since, to
        self.keys: list[str] = []
        self.error: Exception | None = None
        self.started = threading.Event()
        self.go = threading.Event()
        self.go.set()
        tailrace.consumer(self.kind)(self._consume)

    def _consume(self, changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        self.runs.append((job.name, job.since, job.to))
        self.keys.append(job.idempotency_key)
        rows = [
            {"change": row["_change"], "id": row["id"], "v": row["v"]}
            for batch in changes.batches()
            for row in batch.to_pylist()
        ]
        if rows:
            txn.table(self.table).append(rows)
        self.started.set()
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error

    def net(self) -> list[tuple[Any, ...]]:
        """What the recorded changes add up to; an assertion if a row is deleted before it came."""
        count: Counter[tuple[Any, ...]] = Counter()
        for row in self.lake.table(self.table).to_arrow().to_pylist():
            count[row["id"], row["v"]] += 1 if row["change"] == "insert" else -1
        assert all(0 <= n <= 1 for n in count.values()), count
        return sorted(row for row, n in count.items() if n)


def hold(run: Callable[[], Any]) -> threading.Thread:
    """Run something beside the test."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
