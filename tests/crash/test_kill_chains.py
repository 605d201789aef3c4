"""Processes killed in the middle of a bundle, and processes that compete for one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support import chains, children, servers
from tests.support.chains import base, check, layer
from tests.support.process import wait_until

if TYPE_CHECKING:
    import tailrace
    from tests.support.lakes import LakeArgs

NAMES = ["v1", "v2", "v3", "v4"]


def make(lake: tailrace.Lake) -> None:
    """A chain of three, of which the last also stands on a fourth beside it."""
    base(lake, "t")
    base(lake, "b")
    layer(lake, "v1", ["t"])
    layer(lake, "v2", ["b"], of=["v1"])
    layer(lake, "v4", ["t"], job_type="greedy")
    layer(lake, "v3", of=["v2", "v4"])


def write(lake: tailrace.Lake, number: int) -> None:
    with lake.transaction() as txn:  # all are behind at once
        for name in ("t", "b"):
            txn.table(name).append([{"id": 100 + number}])


# Claimed all of them, in the middle of the bundle, and around its commit.
@pytest.mark.parametrize(
    ("step", "nth"),
    [("claimed", 1), ("consumed", 2), ("rows written", 1), ("committed", 1), ("job committed", 1)],
)
def test_a_kill_in_a_bundle_leaves_all_of_it_or_nothing(
    sqlite_lake_args: LakeArgs, step: str, nth: int
) -> None:
    with sqlite_lake_args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_soon(lake)
        make(lake)
        lake.run_until_fresh(timeout=60)
        for number in range(3):
            write(lake, number)
        child = children.start(chains.serve, sqlite_lake_args, None, step, nth, servers.SETTINGS)
        assert children.join(child) == -signal.SIGKILL
        assert len(chains.labels(lake, NAMES)) == 1
        lake.run_until_fresh(timeout=60)
        check(lake, NAMES, together=True)
        write(lake, 3)
        lake.run_until_fresh(timeout=60)
        check(lake, NAMES, together=True)


def test_two_processes_never_share_a_bundle(lake_args: LakeArgs) -> None:
    with lake_args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_late(lake)
        make(lake)
        events = [children.context().Event() for _ in range(2)]
        running = [
            children.start(chains.serve, lake_args, event, None, 1, servers.SETTINGS)
            for event in events
        ]
        for event in events:
            assert event.wait(60)
        for number in range(30):
            write(lake, number)
        wait_until(
            lambda: all(job.is_fresh for job in lake.jobs.list()), what="fresh jobs", timeout=60
        )
        for child in running:
            child.kill()
            children.join(child)
        assert [job.error for job in lake.jobs.list()] == [None] * 4
        check(lake, NAMES, together=True)
