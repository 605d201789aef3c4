"""Processes that serve a lake, for tests that kill them or let them compete."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import tailrace
from tests.support.lakes import configure
from tests.support.rows import bag

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

SETTINGS = tailrace.Settings(
    retry_first=timedelta(milliseconds=50),
    watch_interval=timedelta(milliseconds=50),
    reconcile_interval=timedelta(seconds=1),
)
TABLES = ("one", "two")


@tailrace.consumer("ledger")
def ledger(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
    """Writes down every change and the iteration that brought it."""
    rows = [
        {"job": job.name, "key": job.idempotency_key, "change": row["_change"], "id": row["id"]}
        | {"v": row["v"]}
        for batch in changes.batches()
        for row in batch.to_pylist()
    ]
    if rows:
        txn.table(f"ledger_{job.options['of']}").append(rows)


def take_over_soon(lake: tailrace.Lake) -> None:
    """Let a node that was killed be taken over from soon."""
    configure(lake, node_timeout=timedelta(seconds=1))


def take_over_late(lake: tailrace.Lake) -> None:
    """Never take a node that lives for dead, however slow the machine is."""
    configure(lake, node_timeout=timedelta(minutes=1))


def make(lake: tailrace.Lake) -> None:
    """Two tables, each with a replica, a filtered choice of columns, and a ledger."""
    for name in TABLES:
        lake.create_table(name, {"id": "bigint", "v": "string"}, primary_key="id")
        lake.create_table(
            f"ledger_{name}",
            {"job": "string", "key": "string", "change": "string", "id": "bigint", "v": "string"},
        )
        copy = {"kind": "replica", "table": f"{name}_copy"}
        keys = {"kind": "replica", "table": f"{name}_keys", "columns": ["id"]}
        lake.jobs.register(name, "copy", {"consumer": copy})
        lake.jobs.register(name, "keys", {"consumer": keys, "trigger": {"job_type": "greedy"}})
        lake.jobs.register(name, "ledger", {"consumer": {"kind": "ledger", "of": name}})


def write(lake: tailrace.Lake, number: int) -> None:
    """Some commit, that depends on its number alone."""
    table = lake.table(TABLES[number % 2])
    table.upsert([{"id": i, "v": f"{number}"} for i in range(number % 13, 40, 7)])
    if number % 5 == 0:
        table.delete([{"id": (number * 3) % 40}])


def check(lake: tailrace.Lake) -> None:
    """Everything derived equals its source, and no change was applied twice or not at all."""
    for name in TABLES:
        rows = bag(lake.table(name).to_arrow())
        assert bag(lake.table(f"{name}_copy").to_arrow()) == rows
        keys = lake.table(f"{name}_keys").to_arrow()
        assert sorted(keys.column("id").to_pylist()) == [row[0] for row in rows]
        net: Counter[tuple[Any, ...]] = Counter()
        for row in lake.table(f"ledger_{name}").to_arrow().to_pylist():
            net[row["id"], row["v"]] += 1 if row["change"] == "insert" else -1
        assert sorted(row for row, count in net.items() if count) == rows
        assert set(net.values()) <= {0, 1}
    for status in lake.jobs.list():
        done = [d for d in lake.jobs.history(status.table, status.name) if d.error is None]
        for later, earlier in itertools.pairwise(done):  # newest first
            assert later.from_snapshot is not None
            assert later.from_snapshot >= earlier.to_snapshot


def serve(
    args: LakeArgs,
    ready: Any = None,
    step: str | None = None,
    nth: int = 1,
    settings: tailrace.Settings = SETTINGS,
) -> None:
    """Serve a lake until ended; with a step, die when that is reached for the nth time."""
    reached = itertools.count(1)
    lock = threading.Lock()

    def on_step(name: str) -> None:
        with lock:
            if name == step and next(reached) == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    with args.connect(settings=settings, on_step=on_step) as lake, lake.serving():
        if ready is not None:
            ready.set()
        threading.Event().wait()
