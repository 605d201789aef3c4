"""A purge and jobs that stand on jobs: what they read is kept, and who lost it is rebuilt."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.propagation import tables as t
from tailrace.propagation.outputs import version_at
from tests.support import chains
from tests.support.chains import GATES, STARTED, base, labels, layer, row_at
from tests.support.clock import MovableClock
from tests.support.jobs import hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

RETENTION = timedelta(days=7)
LONG = RETENTION + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    chains.clear()
    yield
    for gate in GATES.values():
        gate.set()
    chains.clear()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(sqlite_lake_args: LakeArgs, clock: MovableClock) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect(clock=clock) as opened:
        opened.configure(snapshot_retention=RETENTION)
        yield opened


def two(lake: tailrace.Lake) -> tuple[tailrace.Table, tailrace.Table]:
    """A table beneath both jobs, and one for the upper alone."""
    tables = base(lake, "t", 2), base(lake, "b", 3)
    layer(lake, "v1", ["t"])
    layer(lake, "v2", ["b"], of=["v1"])
    lake.run_until_fresh()
    return tables


def add(table: tailrace.Table, *ids: int) -> None:
    table.append([{"id": i} for i in ids])


def version(lake: tailrace.Lake, name: str, label: int) -> int | None:
    with lake._runtime.database.read() as connection:
        return version_at(connection, lake.table(name).info.id, label)


def stored(lake: tailrace.Lake, name: str) -> int:
    with lake._runtime.database.read() as connection:
        query = sa.select(t.job.c.watermark).where(t.job.c.name == name)
        return int(connection.execute(query).scalar_one())


def last(lake: tailrace.Lake, name: str) -> tuple[str, int | None]:
    done = lake.jobs.history(name, name)[0]
    assert done.error is None
    return done.kind, done.from_snapshot


def count(lake: tailrace.Lake, name: str) -> int:
    row = row_at(lake, name)
    assert row is not None
    return row["n"]


def test_the_version_of_a_label_is_found_after_a_purge(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    one, other = two(lake)
    first, made = stored(lake, "v1"), lake.snapshot
    add(other, 10)
    clock.advance(LONG)
    add(one, 10)
    lake.run_until_fresh()
    second, again = stored(lake, "v1"), lake.snapshot
    horizon = lake.purge().horizon
    assert first < made < horizon < again
    # The first is shown at the horizon, and counts as made there.
    for label in (first, made, horizon, second - 1):
        assert version(lake, "v1", label) == horizon
    assert row_at(lake, "v1", horizon) == {"k": 1, "n": 2, "label": first}
    assert version(lake, "v1", second) == version(lake, "v1", lake.snapshot) == again
    assert row_at(lake, "v1", again) == {"k": 1, "n": 3, "label": second}
    assert version(lake, "v1", first - 1) is None
    add(other, 11)
    clock.advance(LONG)
    assert lake.purge().horizon == second  # the upper one has still to read from there on
    assert version(lake, "v1", second) == again
    lake.run_until_fresh()
    assert count(lake, "v2") == 3 + 5
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot
    assert version(lake, "v1", second) == version(lake, "v1", lake.snapshot) == lake.snapshot


def held(name: str) -> tuple[Event, Event]:
    """What lets a job go on, and what says that it is there."""
    GATES[name], STARTED[name] = Event(), Event()
    return GATES[name], STARTED[name]


@pytest.mark.parametrize("paused", [None, "v1"])
def test_a_running_job_keeps_the_version_that_it_reads(
    lake: tailrace.Lake, clock: MovableClock, paused: str | None
) -> None:
    _, other = two(lake)
    made = lake.snapshot
    add(other, 10)
    lake.run_until_fresh()
    assert stored(lake, "v2") > made  # so that its own history begins later
    add(other, 11)
    if paused is not None:
        lake.jobs.pause(paused, paused)  # nothing is missing there, so that the upper one goes on
    gate, started = held("v2")
    running = hold(lake.run_until_fresh)
    try:
        assert started.wait(60)
        clock.advance(LONG)
        lake._services[0].node.beat()
        done = lake.purge()
    finally:
        gate.set()
        running.join(60)
    assert (done.horizon, done.held_by) == (made, "the job main.v2/v2")
    assert count(lake, "v2") == 2 + 5
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot


def test_a_job_above_one_that_is_paused_and_complete_keeps_what_it_has_to_read(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    _, other = two(lake)
    reached = stored(lake, "v2")
    lake.jobs.pause("v1", "v1")
    add(other, 10)
    clock.advance(LONG)
    done = lake.purge()
    assert (done.horizon, done.held_by) == (reached, "the job main.v2/v2")
    lake.run_until_fresh()
    assert last(lake, "v2") == ("tail", reached)
    assert count(lake, "v2") == 2 + 4


def test_a_chain_that_lost_its_history_is_rebuilt_in_one_commit(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = base(lake, "t")
    names = ["v1", "v2", "v3"]
    for name, of in zip(names, ([], ["v1"], ["v2"]), strict=True):
        layer(lake, name, [] if of else ["t"], of=of)
    lake.run_until_fresh()
    reached = stored(lake, "v1")
    lake.jobs.pause("v1", "v1")
    add(table, 10, 11)
    table.delete([{"id": 0}])
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot
    notes = [lake.jobs.status(name, name).note or "" for name in names]
    assert "rebuilds it in full" in notes[0]
    assert all("waits for main.v1/v1" in note for note in notes[1:])
    lake.jobs.resume("v1", "v1")
    before = lake.snapshot
    lake.run_until_fresh()
    assert lake.snapshot == before + 1
    assert labels(lake, names) == {before}
    assert [last(lake, name) for name in names] == [("snapshot", reached)] * 3
    assert [count(lake, name) for name in names] == [3, 3, 3]
    assert {lake.jobs.status(name, name).note for name in names} == {None}
    add(table, 12)
    lake.run_until_fresh()
    assert {last(lake, name)[0] for name in names} == {"tail"}
    assert [count(lake, name) for name in names] == [4, 4, 4]


@pytest.mark.parametrize("lower_lost", [True, False])
def test_of_a_bundle_only_who_lost_its_history_is_rebuilt(
    lake: tailrace.Lake, clock: MovableClock, lower_lost: bool
) -> None:
    one, other = two(lake)
    reached = stored(lake, "v1")
    if lower_lost:
        clock.advance(LONG)
        add(other, 10)
        lake.run_until_fresh()  # the upper alone: it is further than the lower is known to be
        stopped, kinds = "v1", ("snapshot", "tail")
        assert stored(lake, "v2") > stored(lake, "v1") == reached
    else:
        stopped, kinds = "v2", ("tail", "snapshot")
    lake.jobs.pause(stopped, stopped)
    add(one, 20)
    if not lower_lost:
        lake.run_until_fresh()
        clock.advance(LONG)
        add(one, 21)
    horizon = lake.purge().horizon
    assert (stored(lake, "v1") < horizon, stored(lake, "v2") < horizon) == (
        lower_lost,
        not lower_lost,
    )
    lake.jobs.resume(stopped, stopped)
    before = lake.snapshot
    lake.run_until_fresh()
    assert lake.snapshot == before + 1
    assert (last(lake, "v1")[0], last(lake, "v2")[0]) == kinds
    rows = len(one.to_arrow())
    assert (count(lake, "v1"), count(lake, "v2")) == (rows, rows + len(other.to_arrow()))


def test_a_run_above_whose_end_was_purged_ends_elsewhere(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    one, other = two(lake)
    add(one, 10)
    chains.FAILS["v2"] = tailrace.InvalidError("not today")
    with pytest.raises(tailrace.JobFailedError):
        lake.run_until_fresh()  # the lower one goes on without it
    chains.FAILS.clear()
    add(other, 10)
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot
    lake.jobs.resume("v2", "v2")
    lake.run_until_fresh()
    assert last(lake, "v2")[0] == "snapshot"
    assert count(lake, "v2") == 3 + 4
