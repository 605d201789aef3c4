"""Consumers that raise, hang, end their process and leave garbage, and what they leave behind."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tailrace
from tests.support import servers
from tests.support.rows import bag

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

# Failing is what these do: nobody waits for a person, and not for long.
SETTINGS = replace(servers.SETTINGS, retry_limit=10**6, retry_longest=servers.SETTINGS.retry_first)


class Unspeakable(Exception):  # noqa: N818  (a user's own)
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class _State:
    random: Random | None = None  # None: behave
    calm: Path | None = None
    hang = threading.Event()


def _misbehave(job: Any) -> None:
    random, calm = _State.random, _State.calm
    if random is None or calm is None or calm.exists():
        return
    what = random.choice([*["behave"] * 4, "raise", "unspeakable", "hang", "exit", "leave", "out"])
    if what == "raise":
        raise ValueError("\udcff\0 a broken text")
    if what == "unspeakable":
        raise Unspeakable
    if what == "hang":
        _State.hang.wait(3)  # longer than the job's timeout
    if what == "exit":
        os._exit(3)
    if what == "leave":
        raise SystemExit("goodbye")
    if what == "out":
        job.memory["garbage"] = object()


@tailrace.consumer("bad")
def bad(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> object:
    """Writes down every change, if it comes to that; misbehaves before and after."""
    _misbehave(job)
    rows = [
        {"change": row["_change"], "id": row["id"], "v": row["v"]}
        for batch in changes.batches()
        for row in batch.to_pylist()
    ]
    if rows:
        txn.table(f"bad_{job.options['of']}").append(rows)
    _misbehave(job)
    return object()  # nobody asked for that


def make(lake: tailrace.Lake) -> None:
    """A bad consumer of each table."""
    servers.take_over_soon(lake)
    for name in servers.TABLES:
        columns = {"change": "string", "id": "bigint", "v": "string"}
        lake.create_table(f"bad_{name}", columns)
        spec = {"consumer": {"kind": "bad", "of": name}, "timeout": "1s"}
        lake.jobs.register(name, "bad", spec)


def serve(args: LakeArgs, calm: str, seed: int) -> None:
    """Serve the lake badly, until ended."""
    _State.random, _State.calm = Random(seed), Path(calm)
    servers.serve(args, None, None, 1, SETTINGS)


def settle(lake: tailrace.Lake) -> None:
    """Bring everything to its end, with good behaviour."""
    help_out(lake)
    lake.run_until_fresh(timeout=120)


def help_out(lake: tailrace.Lake) -> None:
    """What a person does about jobs that wait for one."""
    for job in lake.jobs.list(state="error"):
        lake.jobs.resume(job.table, job.name)


def check(lake: tailrace.Lake) -> None:
    """Each change was written down once, and the record says that all is well."""
    for name in servers.TABLES:
        net: Counter[tuple[Any, ...]] = Counter()
        for row in lake.table(f"bad_{name}").to_arrow().to_pylist():
            net[row["id"], row["v"]] += 1 if row["change"] == "insert" else -1
        assert sorted(row for row, count in net.items() if count) == bag(
            lake.table(name).to_arrow()
        )
        assert set(net.values()) <= {0, 1}
        done = [one for one in lake.jobs.history(name, "bad", limit=10**6) if one.error is None]
        for later, earlier in itertools.pairwise(done):
            assert later.from_snapshot is not None
            assert later.from_snapshot >= earlier.to_snapshot
