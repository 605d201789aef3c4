"""What jobs need is not purged; a job that was away for too long is rebuilt, and says so."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.propagation import tables as t
from tailrace.propagation.runner import Runner
from tests.support.clock import MovableClock
from tests.support.jobs import Recorder, hold, orders, replica, same, spec
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

RETENTION, GRACE = timedelta(days=7), timedelta(hours=1)
LONG = RETENTION + timedelta(minutes=1)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(lake_args: LakeArgs, clock: MovableClock, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with lake_args.connect(clock=clock, spark=spark) as opened:
        yield opened


def followed(lake: tailrace.Lake, **more: Any) -> tailrace.Table:
    """A table with a replica that is fresh."""
    table = orders(lake)
    lake.jobs.register("orders", "copy", replica("copy", **more))
    lake.run_until_fresh()
    return table


def watermark(lake: tailrace.Lake, name: str = "copy") -> int | None:
    query = sa.select(t.job.c.watermark).where(t.job.c.name == name, t.job.c.dropped_at.is_(None))
    with lake._runtime.database.read() as connection:
        found = connection.execute(query).scalar_one()
    return None if found is None else int(found)


def change(table: tailrace.Table, times: int = 3) -> None:
    for number in range(times):
        table.upsert([{"id": number, "v": f"change {number}"}, {"id": 50, "v": f"{number}"}])


def test_a_job_that_is_behind_keeps_what_it_has_to_read(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = followed(lake)
    reached = watermark(lake)
    change(table)
    clock.advance(LONG)
    done = lake.purge()
    assert (done.horizon, done.held_by) == (reached, "the job main.orders/copy")
    lake.run_until_fresh()
    assert lake.jobs.history("orders", "copy")[0].kind == "tail"
    assert same(lake, "orders", "copy")
    assert lake.purge().horizon == lake.snapshot - 1  # what its own commit came after is kept
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot


def test_a_job_that_has_nothing_to_do_keeps_nothing(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = followed(lake)
    lake.jobs.register("orders", "away", replica("away"))
    lake.run_until_fresh()
    lake.jobs.pause("orders", "away")  # neither does one that would have nothing to do
    other = orders(lake, "other")
    change(other)
    clock.advance(LONG)
    done = lake.purge()
    assert (done.horizon, done.held_by) == (lake.snapshot, None)
    lake.jobs.resume("orders", "away")
    change(table)
    lake.run_until_fresh()
    for name in ("copy", "away"):
        assert lake.jobs.history("orders", name)[0].kind == "tail"
        assert same(lake, "orders", name)


def stop(lake: tailrace.Lake, how: str) -> None:
    if how == "error":
        with lake._runtime.database.lock() as connection:
            connection.execute(sa.update(t.job).values(state="error"))
    else:
        getattr(lake.jobs, how)("orders", "copy")


@pytest.mark.parametrize("how", ["pause", "cancel", "error"])
def test_a_replica_that_was_away_for_too_long_is_rebuilt_and_says_so(
    lake: tailrace.Lake, clock: MovableClock, how: str
) -> None:
    table = followed(lake)
    reached = watermark(lake)
    stop(lake, how)
    change(table)
    table.delete([{"id": 3}, {"id": 4}])  # the last rows of the file that it has read
    assert lake.jobs.status("orders", "copy").note is None
    clock.advance(LONG)
    assert (lake.purge().horizon, lake.purge().held_by) == (lake.snapshot, None)
    clock.advance(GRACE + LONG)
    assert lake.purge().objects > 0
    note = lake.jobs.status("orders", "copy").note
    assert note is not None
    assert f"reflects the snapshot {reached}" in note
    assert "rebuilds it in full" in note
    lake.jobs.resume("orders", "copy")
    lake.run_until_fresh()
    done = lake.jobs.history("orders", "copy")[0]
    assert (done.kind, done.from_snapshot, done.error) == ("snapshot", reached, None)
    assert same(lake, "orders", "copy")
    assert lake.jobs.status("orders", "copy").note is None
    change(table)
    lake.run_until_fresh()
    assert lake.jobs.history("orders", "copy")[0].kind == "tail"
    assert same(lake, "orders", "copy")


def test_a_paused_job_keeps_its_history_within_the_retention(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = followed(lake)
    clock.advance(LONG)
    change(orders(lake, "other"))
    lake.purge()  # moves its watermark on
    lake.jobs.pause("orders", "copy")
    change(table)
    clock.advance(RETENTION / 2)
    lake.purge()
    lake.jobs.resume("orders", "copy")
    lake.run_until_fresh()
    assert lake.jobs.history("orders", "copy")[0].kind == "tail"
    assert same(lake, "orders", "copy")


def test_a_run_that_failed_and_whose_end_was_purged_ends_elsewhere(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    lake.run_until_fresh()
    change(table, 1)
    recorder.error = tailrace.InvalidError("not today")
    with pytest.raises(tailrace.JobFailedError, match="not today"):
        lake.run_until_fresh()  # claimed up to here
    failed = recorder.runs[-1]
    change(table)
    clock.advance(LONG)
    assert lake.purge().horizon == lake.snapshot
    recorder.error = None
    lake.jobs.resume("orders", "log")
    lake.run_until_fresh()
    assert recorder.runs[-1] == ("log", failed[1], lake.snapshot - 1)
    assert lake.jobs.history("orders", "log")[0].kind == "snapshot"
    # As another run, for systems outside that have seen the failed one.
    assert recorder.keys[-1] not in recorder.keys[:-1]


def test_a_new_job_beside_one_that_came_back_has_a_snapshot_to_begin_with(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = followed(lake)
    lake.jobs.pause("orders", "copy")
    change(table)
    clock.advance(LONG)
    lake.purge()
    lake.jobs.resume("orders", "copy")
    lake.jobs.register("orders", "second", replica("second"))
    lake.run_until_fresh()
    assert same(lake, "orders", "copy")
    assert same(lake, "orders", "second")


def test_others_go_on_while_a_job_is_rebuilt(lake: tailrace.Lake, clock: MovableClock) -> None:
    table = followed(lake)
    lake.jobs.register("orders", "second", replica("second"))
    lake.run_until_fresh()
    lake.jobs.pause("orders", "copy")
    change(table)
    lake.run_until_fresh()
    clock.advance(LONG)
    lake.purge()
    lake.jobs.resume("orders", "copy")
    change(table, 1)
    lost, front = watermark(lake), watermark(lake, "second")
    works = Runner(lake._runtime, "n", live=lambda _: {"n"}).look()
    found = {member.job.name: (member, work.to) for work in works for member in work.members}
    assert {name: (one.since, to, one.catches_up) for name, (one, to) in found.items()} == {
        "copy": (lost, front, True),
        "second": (front, lake.snapshot, False),
    }


def test_a_rebuild_is_not_cut(
    lake_args: LakeArgs, clock: MovableClock, spark: SparkSession
) -> None:
    """Where a backlog would be cut, there may be no snapshot any more."""
    settings = tailrace.Settings(iteration_snapshots=1)
    with lake_args.connect(clock=clock, settings=settings, spark=spark) as lake:
        table = followed(lake)
        lake.jobs.pause("orders", "copy")
        for number in range(10, 14):
            table.append([{"id": number, "v": "more"}])
        clock.advance(LONG)
        lake.purge()
        table.append([{"id": 20, "v": "last"}])
        lake.jobs.resume("orders", "copy")
        lake.run_until_fresh()
        assert same(lake, "orders", "copy")
        kinds = [done.kind for done in lake.jobs.history("orders", "copy")]
        assert kinds[0] == "snapshot"


def test_a_running_job_keeps_what_it_reads(lake: tailrace.Lake, clock: MovableClock) -> None:
    table = orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    running = hold(lake.run_until_fresh)  # its first run: it needs the snapshot that it reads
    try:
        assert recorder.started.wait(60)
        change(table)
        clock.advance(LONG)
        lake._services[0].node.beat()
        lake.jobs.pause("orders", "log")  # which lets it end
        done = lake.purge()
    finally:
        recorder.go.set()
        running.join(60)
    claimed = recorder.runs[-1][2]
    assert (done.horizon, done.held_by) == (claimed, "the job main.orders/log")
    assert watermark(lake, "log") == claimed


def test_a_copy_of_a_copy_gets_what_was_committed_after_its_watermark(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    """It follows the commits of the copy, not the snapshots that these reflect."""
    table = followed(lake)
    lake.jobs.register("copy", "again", replica("again"))
    lake.run_until_fresh()
    lake.jobs.pause("copy", "again")
    change(table)
    clock.advance(LONG)
    lake.purge()
    assert watermark(lake, "again") == lake.snapshot  # moved on: the copy has not changed yet
    lake.run_until_fresh()
    change(orders(lake, "other"), 1)
    clock.advance(LONG)
    lake.purge()
    lake.jobs.resume("copy", "again")
    lake.run_until_fresh()
    assert same(lake, "orders", "again")


def test_a_tenant_is_not_told_of_the_jobs_of_others(
    lake_args: LakeArgs, lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = followed(lake)
    change(table)
    clock.advance(LONG)
    lake.purge()
    with lake_args.connect(clock=clock, tenant="acme") as other:
        assert [done.held_by for done in other.purges()] == ["a job or a transaction"]
    assert [done.held_by for done in lake.purges()] == ["the job main.orders/copy"]


def test_serving_purges_in_the_background(lake_args: LakeArgs, clock: MovableClock) -> None:
    with lake_args.connect(clock=clock) as lake:
        change(orders(lake))
        clock.advance(LONG)
        newest = lake.snapshot
        with lake.serving():
            wait_until(lambda: lake.snapshots()[0].id == newest, what="the purge")
        assert lake.purges()[0].horizon == newest
        change(lake.table("orders"))
        clock.advance(LONG)
        lake.run_until_fresh()  # who waits for fresh data does not purge
        assert lake.snapshots()[0].id == newest


def test_a_job_can_ask_for_history_to_be_kept_longer(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    lake.configure(snapshot_retention=timedelta(0))
    table = orders(lake)
    first = lake.snapshot
    lake.jobs.register("orders", "copy", {**replica("copy"), "retention": "3d"})
    lake.run_until_fresh()
    change(table)
    assert lake.purge().held_by == "the job main.orders/copy, which keeps 3d of history"
    assert lake.snapshots()[0].id <= first
    clock.advance(timedelta(days=2))
    change(table)
    lake.run_until_fresh()
    second = lake.snapshot
    clock.advance(timedelta(days=2))
    change(table, 1)
    lake.run_until_fresh()
    done = lake.purge()
    # Of the last three days: what was the newest when they began, and all since.
    assert first < done.horizon <= second
    lake.jobs.update("orders", "copy", {"retention": "1s"})
    clock.advance(timedelta(minutes=1))
    assert lake.purge().horizon == lake.snapshot


def test_how_much_history_jobs_can_ask_for_is_the_owners_word(lake: tailrace.Lake) -> None:
    orders(lake)
    asking = {**replica("copy"), "retention": "31d"}
    with pytest.raises(tailrace.InvalidError, match="at most 30 days"):
        lake.jobs.register("orders", "copy", asking)
    lake.configure(longest_retention=timedelta(days=40))
    assert lake.jobs.register("orders", "copy", asking)
    with pytest.raises(tailrace.InvalidError, match="at most 40 days"):
        lake.jobs.update("orders", "copy", {"retention": "41d"})
