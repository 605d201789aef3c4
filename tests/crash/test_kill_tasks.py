"""Processes that are killed, or fall asleep, at each step of a task: others take it over."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tests.support import children, servers, victim
from tests.support.lakes import configure
from tests.support.process import wait_until
from tests.support.rows import column

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

STEPS = ["task claimed", "task worked", "task entered", "task done"]


def make(lake: tailrace.Lake) -> None:
    """A table, and an object of a transaction that died."""
    configure(lake, transaction_timeout=timedelta(0))
    servers.take_over_soon(lake)
    lake.create_table("t", {"id": "bigint"}).append([{"id": 1}])
    dead = lake.transaction()
    dead.table("t").append([{"id": 2}])
    lake._heartbeat.forget(dead.id)


def sweeps(lake: tailrace.Lake) -> list[tuple[str, int]]:
    """State and attempts of each."""
    c = t.task.c
    with lake.runtime.database.read() as connection:
        query = sa.select(c.state, c.attempts).order_by(c.task_id)
        return [(row.state, row.attempts) for row in connection.execute(query)]


@pytest.mark.parametrize("step", STEPS)
def test_a_task_whose_process_was_killed_is_taken_over(lake_args: LakeArgs, step: str) -> None:
    with lake_args.connect() as lake:
        make(lake)
        child = children.start(victim.run, lake_args, victim.sweep, (), step, 1)
        assert children.join(child) == -signal.SIGKILL
        was_entered = step == "task done"
        assert sweeps(lake) == [("done" if was_entered else "running", 1)]
        lake.sweep()
        # It is done again, or another is.
        assert sweeps(lake) == ([("done", 1)] * 2 if was_entered else [("done", 2)])
        assert len(list(lake.runtime.storage.list())) == 1
        assert column(lake.table("t").to_arrow(), "id") == [1]


@pytest.mark.parametrize("step", STEPS[:2])
def test_a_node_that_wakes_up_late_has_no_say(lake_args: LakeArgs, step: str) -> None:
    """It slept for longer than nodes may be silent, and another did its task."""
    with lake_args.connect() as lake:
        make(lake)
        child = children.start(
            victim.run, lake_args, victim.told_sweep, (), step, 1, None, signal.SIGSTOP
        )
        assert child.pid is not None
        try:
            wait_until(lambda: sweeps(lake) and _is_stopped(child.pid), what="the sleep")
            lake.sweep()
            assert sweeps(lake) == [("done", 2)]
        finally:
            os.kill(child.pid, signal.SIGCONT)
        assert children.join(child) == victim.REFUSED
        assert sweeps(lake) == [("done", 2)]


def _is_stopped(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
