"""Processes that are killed, or fall asleep, at each step of a compaction: nothing is lost, and
others finish it."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tailrace.store import tables as t
from tests.support import children, duck, servers, victim
from tests.support.lakes import configure
from tests.support.process import wait_until
from tests.support.rows import bag

if TYPE_CHECKING:
    import tailrace
    from tests.support.lakes import LakeArgs

STEPS = [
    "task claimed", "registered", "compacted files written", "deletes carried over", "prepared",
    "locked", "task entered", "rows written", "committed", "task worked", "task done",
]  # fmt: skip
# From here on it has happened.
COMMITTED = STEPS.index("committed")
# Most of them are the same on either catalog.
PLACES = [
    *(("sqlite", step) for step in STEPS),
    *(("postgres", step) for step in ("deletes carried over", "rows written", "committed")),
]


def make(lake: tailrace.Lake) -> list[tuple[int, str]]:
    """A table of ten small files, some rows of which are deleted; returns its rows."""
    servers.take_over_soon(lake)
    table = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    for first in range(0, 50, 5):
        table.append([{"id": first + i, "v": "x"} for i in range(5)])
    table.delete([{"id": i} for i in range(0, 50, 7)])
    return [(i, "x") for i in range(50) if i % 7]


def compactions(lake: tailrace.Lake) -> list[tuple[str, int]]:
    """State and attempts of each."""
    c = t.task.c
    with lake.runtime.database.read() as connection:
        query = sa.select(c.state, c.attempts).where(c.type == "compact").order_by(c.task_id)
        return [(row.state, row.attempts) for row in connection.execute(query)]


def files(lake: tailrace.Lake) -> int:
    return len(lake.runtime.mirror.data_files(lake.table("t").info, lake.snapshot))


def check(lake: tailrace.Lake, args: LakeArgs, rows: list[tuple[int, str]]) -> None:
    with duck.attach(args) as reader:
        for at in range(lake.snapshot - 1, lake.snapshot + 1):
            assert bag(lake.table("t").to_arrow(at=at)) == rows
            assert bag(duck.read(reader, "t", at)) == rows


@pytest.mark.parametrize(("catalog", "step"), PLACES)
def test_a_compaction_whose_process_was_killed_is_finished_by_others(
    lake_args: LakeArgs, step: str
) -> None:
    with lake_args.connect() as lake:
        rows = make(lake)
        before = lake.snapshot
        child = children.start(victim.run, lake_args, victim.maintain, (), step, 1)
        assert children.join(child) == -signal.SIGKILL
        has_happened = STEPS.index(step) >= COMMITTED
        assert compactions(lake) == [("done" if has_happened else "running", 1)]
        assert (lake.snapshot - before, files(lake)) == ((1, 1) if has_happened else (0, 10))
        assert bag(lake.table("t").to_arrow()) == rows
        configure(lake, transaction_timeout=timedelta(0))  # the next sweep gives it up
        lake.maintain("t")
        assert compactions(lake) == [("done", 1 if has_happened else 2)]
        assert (lake.snapshot - before, files(lake)) == (1, 1)
        check(lake, lake_args, rows)
        # Only what no commit names is left behind, and is swept.
        lake.sweep()
        named = {file.path for at in (before, before + 1) for file in _files(lake, at)}
        left = {
            path for path in lake.runtime.storage.list() if not path.endswith("-delete.parquet")
        }
        assert left == named


def _files(lake: tailrace.Lake, at: int) -> list[object]:
    return list(lake.runtime.mirror.data_files(lake.table("t").info, at))


@pytest.mark.parametrize("step", ["compacted files written", "prepared"])
def test_a_node_that_wakes_up_late_commits_nothing(lake_args: LakeArgs, step: str) -> None:
    """It slept for longer than nodes may be silent, and another did its task."""
    with lake_args.connect() as lake:
        rows = make(lake)
        child = children.start(
            victim.run, lake_args, victim.told_maintain, (), step, 1, None, signal.SIGSTOP
        )
        assert child.pid is not None
        try:
            wait_until(lambda: compactions(lake) and _is_stopped(child.pid), what="the sleep")
            lake.maintain("t")
            snapshot = lake.snapshot
        finally:
            os.kill(child.pid, signal.SIGCONT)
        assert children.join(child) == victim.REFUSED
        assert (lake.snapshot, compactions(lake)) == (snapshot, [("done", 2)])
        check(lake, lake_args, rows)


def _is_stopped(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
