"""Thousands of first runs at once: what was fresh before stays fresh meanwhile."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support.jobs import ORDERS, hold, spec

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

JOBS, TABLES = 5000, 100
WITHIN = 2.0  # seconds, of a commit: the lock is not held; and of a job that was fresh before
MEASURED = 40.0  # seconds after the registration; working off all of it takes minutes


@tailrace.consumer("counting")
def counting(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
    job.memory["rows"] = job.memory.get("rows", 0) + sum(b.num_rows for b in changes.batches())


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_a_fresh_job_stays_fresh_beside_five_thousand_new_ones(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        with lake.transaction() as txn:
            for number in range(TABLES):
                made = txn.create_table(f"t{number}", ORDERS, primary_key="id")
                made.append([{"id": row, "v": "first"} for row in range(5)])
        watched = lake.table("t0")
        lake.jobs.register("t0", "watched", spec("counting"))
        commits, freshness = [], []
        with lake.serving() as serving:
            lake.jobs.wait("t0", "watched", timeout=60)
            registering = hold(lambda: register(lake))
            deadline = float("inf")
            for number in itertools.count(100):
                if not registering.is_alive():
                    deadline = min(deadline, time.monotonic() + MEASURED)
                began = time.monotonic()
                if began > deadline:
                    break
                snapshot = watched.append([{"id": number, "v": "x"}])
                commits.append(time.monotonic() - began)
                lake.jobs.wait("t0", "watched", snapshot, timeout=60)
                freshness.append(time.monotonic() - began - commits[-1])
            assert serving.service.scheduler.waiting > JOBS / 2, "it was not put to the test"
        assert len(lake.jobs.list()) == JOBS + 1
        assert max(commits) < WITHIN
        assert max(freshness) < WITHIN


def register(lake: tailrace.Lake) -> None:
    """All in one transaction: the lock is held once, for all of them."""
    with lake.transaction() as txn:
        for number in range(JOBS):
            job = f"t{number % TABLES}", f"j{number}", spec("counting", "greedy")
            lake.jobs.register(*job, txn=txn)
