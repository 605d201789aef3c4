"""Thousands of first runs at once: what was fresh before stays fresh meanwhile."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support.jobs import orders, spec

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

JOBS, TABLES = 5000, 100
WITHIN = 2.0  # seconds
LONGEST_LOCK = 2.0


@tailrace.consumer("counting")
def counting(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
    job.memory["rows"] = job.memory.get("rows", 0) + sum(b.num_rows for b in changes.batches())


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at_once", [True, False], ids=["one transaction", "one by one"])
def test_a_fresh_job_stays_fresh_beside_five_thousand_new_ones(
    lake_args: LakeArgs, *, at_once: bool
) -> None:
    with lake_args.connect() as lake:
        tables = [orders(lake, f"t{number}") for number in range(TABLES)]
        watched = tables[0]
        lake.jobs.register("t0", "watched", spec("counting"))
        late: list[float] = []
        with lake.serving() as serving:
            lake.jobs.wait("t0", "watched", timeout=60)
            registering = threading.Thread(
                target=_register, args=(lake,), kwargs={"at_once": at_once}
            )
            registering.start()
            number = 100
            while registering.is_alive() or serving.service.scheduler.waiting:
                number += 1
                began = time.monotonic()
                snapshot = watched.append([{"id": number, "v": "x"}])
                committed = time.monotonic()
                assert committed - began < LONGEST_LOCK, "the commit lock was held"
                lake.jobs.wait("t0", "watched", snapshot, timeout=60)
                late.append(time.monotonic() - committed)
            registering.join()
            left = len(lake.jobs.list("new"))
        late.sort()
        middle, last = late[len(late) // 2], late[-1]
        shown = f"{len(late)} commits: {middle:.2f} s in the middle, {last:.2f} s at most, {left}"
        print(shown)  # noqa: T201
        assert len(lake.jobs.list()) == JOBS + 1
        assert last < WITHIN, shown


def _register(lake: tailrace.Lake, *, at_once: bool) -> None:
    names = [(f"t{number % TABLES}", f"j{number}") for number in range(JOBS)]
    if at_once:
        with lake.transaction() as txn:
            for table, name in names:
                lake.jobs.register(table, name, spec("counting", "greedy"), txn=txn)
        return
    for table, name in names:
        lake.jobs.register(table, name, spec("counting", "greedy"))
