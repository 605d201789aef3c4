"""Processes killed while they run jobs, and processes that compete for them: exactly once."""

from __future__ import annotations

import signal
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tailrace.propagation import tables as t
from tests.support import children, counted, servers
from tests.support.jobs import orders, replica, same
from tests.support.lakes import CATALOGS
from tests.support.process import wait_until

if TYPE_CHECKING:
    import tailrace
    from tests.support.lakes import LakeArgs

# What an iteration passes through, from its claim to the end of its commit.
STEPS = [
    "claimed",
    "registered",
    "files written",
    "delete file written",
    "consumed",
    "prepared",
    "locked",
    "rows written",
    "committed",
    "job committed",
]
# From here on it is the catalog that a kill meets. What is before is the same on each kind: each
# has every other step, and those of the other kind in `make stress`.
COMMIT = STEPS.index("prepared")
PLACES = [
    pytest.param(
        catalog,
        step,
        marks=[pytest.mark.stress] if number < COMMIT and number % 2 != kind else [],
    )
    for kind, catalog in enumerate(CATALOGS)
    for number, step in enumerate(STEPS)
]


def settle(lake: tailrace.Lake) -> None:
    lake.run_until_fresh(timeout=60)
    servers.check(lake)


@pytest.mark.parametrize(("catalog", "step"), PLACES)
def test_a_kill_at_any_step_loses_and_doubles_nothing(lake_args: LakeArgs, step: str) -> None:
    with lake_args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_soon(lake)
        servers.make(lake)
        for number in range(4):
            servers.write(lake, number)
        lake.run_until_fresh(timeout=60)
        for number in range(4, 12):
            servers.write(lake, number)
        child = children.start(servers.serve, lake_args, None, step, 2)
        assert children.join(child) == -signal.SIGKILL
        settle(lake)


@pytest.mark.parametrize(("step", "nth"), [("consumed", 3), ("rows written", 2), ("committed", 2)])
def test_a_kill_in_a_commit_that_siblings_share_loses_and_doubles_nothing(
    lake_args: LakeArgs, step: str, nth: int
) -> None:
    copies = [f"copy{number}" for number in range(6)]
    with lake_args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_soon(lake)
        table = orders(lake)
        for name in copies:
            lake.jobs.register("orders", name, replica(name))
        lake.run_until_fresh(timeout=60)
        table.upsert([{"id": 1, "v": "changed"}, {"id": 9, "v": "new"}])
        # The first copy commits alone, and the others together.
        child = children.start(servers.serve, lake_args, None, step, nth)
        assert children.join(child) == -signal.SIGKILL
        done = [name for name in copies if same(lake, "orders", name)]
        if step != "consumed":  # how many were committed before that depends on the time they took
            assert (len(done) > 1) == (step == "committed")
        table.delete([{"id": 9}])
        lake.run_until_fresh(timeout=60)
        assert all(same(lake, "orders", name) for name in copies)
        for name in copies:
            runs = [one for one in lake.jobs.history("orders", name) if one.error is None]
            assert all(a.from_snapshot >= b.to_snapshot for a, b in pairwise(runs))


def kill_at_random(args: LakeArgs, kills: int, seed: int) -> None:
    random = Random(seed)
    number = 0
    with args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_soon(lake)
        servers.make(lake)
        for _ in range(kills):
            ready = children.context().Event()
            child = children.start(servers.serve, args, ready)
            assert ready.wait(60)
            for _ in range(random.randint(1, 12)):
                servers.write(lake, number)
                number += 1
            child.kill()
            assert children.join(child) == -signal.SIGKILL
        settle(lake)
    counted.count("kills between random writes", kills)


@pytest.mark.parametrize("seed", [1])
def test_kills_at_random_moments_lose_and_double_nothing(lake_args: LakeArgs, seed: int) -> None:
    kill_at_random(lake_args, kills=5, seed=seed)


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
def test_fifty_kills(lake_args: LakeArgs, seed: int) -> None:
    kill_at_random(lake_args, kills=50, seed=seed)


def test_two_processes_never_commit_the_same_work(lake_args: LakeArgs) -> None:
    with lake_args.connect(settings=servers.SETTINGS) as lake:
        servers.take_over_late(lake)
        servers.make(lake)
        events = [children.context().Event() for _ in range(2)]
        running = [
            children.start(servers.serve, lake_args, event, None, 1, servers.SETTINGS)
            for event in events
        ]
        for event in events:
            assert event.wait(60)
        for number in range(60):
            servers.write(lake, number)
        wait_until(
            lambda: all(job.is_fresh for job in lake.jobs.list()), what="fresh jobs", timeout=60
        )
        servers.check(lake)
        nodes = {done.node_id for done in lake.jobs.history(limit=10_000)}
        with lake._runtime.database.read() as connection:  # nobody took from a node that lives
            assert set(connection.execute(sa.select(t.job.c.epoch)).scalars()) == {0}
        for child in running:
            child.kill()
            children.join(child)
        assert len(nodes) == 2  # both took part
        servers.write(lake, 100)
        settle(lake)
