"""What users see of jobs, from registration to drop, on every catalog and with real Spark."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.support.jobs import Recorder, hold, orders, replica, same, spec
from tests.support.process import wait_until
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

QUICK = tailrace.Settings(
    retry_first=timedelta(milliseconds=20),
    watch_interval=timedelta(milliseconds=50),
    drop_timeout=timedelta(hours=1),  # a test that waits for it fails, however slow the machine is
)


@pytest.fixture
def lake(lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with lake_args.connect(spark=spark, settings=QUICK) as opened:
        yield opened


def source_rows(lake: tailrace.Lake, table: str = "orders") -> list[tuple[object, ...]]:
    return bag(lake.table(table).to_arrow())


def test_a_replica_follows_its_source(lake: tailrace.Lake) -> None:
    table = orders(lake)
    assert lake.jobs.register("orders", "copy", replica("orders_copy"))
    assert lake.jobs.status("orders", "copy").watermark is None
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    table.upsert([{"id": 1, "v": "changed"}, {"id": 77, "v": "new"}])
    table.delete([{"id": 0}])
    assert not lake.jobs.status("orders", "copy").is_fresh
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    assert lake.jobs.status("orders", "copy").is_fresh
    first, last = reversed(lake.jobs.history("orders", "copy"))
    assert (first.kind, first.from_snapshot, first.rows_read, first.rows_written) == (
        "snapshot",
        None,
        5,
        5,
    )
    assert (last.kind, last.from_snapshot, last.rows_read) == ("tail", first.to_snapshot, 4)
    assert last.bytes_read > 0
    assert last.bytes_written > 0


def test_a_restart_keeps_watermarks(
    lake: tailrace.Lake, lake_args: LakeArgs, spark: SparkSession
) -> None:
    table = orders(lake)
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    done = len(lake.jobs.history())
    table.append([{"id": 100, "v": "late"}])
    with lake_args.connect(spark=spark) as again:
        again.run_until_fresh()
        assert same(again, "orders", "orders_copy")
        last, *before = again.jobs.history()
    assert len(before) == done
    assert (last.kind, last.rows_read) == ("tail", 1)


def test_unregistering_nothing_says_so(lake: tailrace.Lake) -> None:
    orders(lake)
    assert lake.jobs.unregister("orders", "none") is False
    assert lake.jobs.unregister("no_such_table", "none") is False


def test_a_second_registration_keeps_the_first(lake: tailrace.Lake) -> None:
    orders(lake)
    assert lake.jobs.register("orders", "copy", replica("one"))
    first = lake.jobs.status("orders", "copy")
    assert lake.jobs.register("Orders", "COPY", replica("two", priority=9)) is False
    assert lake.jobs.status("orders", "copy") == first
    assert "main.two" not in lake.tables()


def test_a_job_that_is_registered_again_starts_anew(lake: tailrace.Lake) -> None:
    table = orders(lake)
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    old = lake.jobs.status("orders", "copy").job_id
    assert lake.jobs.unregister("orders", "copy")
    assert "main.orders_copy" not in lake.tables()
    table.delete([{"id": 1}])
    assert lake.jobs.register("orders", "copy", replica("orders_copy"))
    fresh = lake.jobs.status("orders", "copy")
    assert fresh.job_id != old
    assert fresh.watermark is None
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    assert [done.kind for done in lake.jobs.history("orders", "copy")] == ["snapshot"]


def test_deletes_and_updates_arrive(lake: tailrace.Lake) -> None:
    table, recorder = orders(lake), Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    lake.run_until_fresh()
    table.upsert([{"id": 2, "v": "second"}])
    table.delete("id = 3")
    lake.run_until_fresh()
    assert recorder.net() == source_rows(lake)
    table.delete("true")
    lake.run_until_fresh()
    assert recorder.net() == []


def test_a_failing_consumer_harms_nobody_and_catches_up(lake: tailrace.Lake) -> None:
    table, other = orders(lake), orders(lake, "other")
    bad, good, far = Recorder(lake), Recorder(lake), Recorder(lake)
    lake.jobs.register("orders", "bad", spec(bad.kind))
    lake.jobs.register("orders", "good", spec(good.kind))
    lake.jobs.register("other", "far", spec(far.kind))
    lake.run_until_fresh()
    before = lake.jobs.status("orders", "bad").watermark
    bad.error = RuntimeError("the disk is on fire")
    table.append([{"id": 50, "v": "x"}])
    other.append([{"id": 51, "v": "y"}])
    with pytest.raises(tailrace.JobFailedError, match=r"main\.orders/bad.*the disk is on fire"):
        lake.run_until_fresh()
    assert good.net() == source_rows(lake)
    assert far.net() == source_rows(lake, "other")
    status = lake.jobs.status("orders", "bad")
    assert status.state == "failing"
    assert status.tries == 3
    assert status.error == "RuntimeError: the disk is on fire"
    assert lake.jobs.status("orders", "good").is_fresh
    assert status.watermark is not None
    assert before is not None
    assert status.watermark <= before
    table.upsert([{"id": 50, "v": "z"}])
    bad.error = None
    lake.run_until_fresh()
    assert bad.net() == good.net() == source_rows(lake)
    assert lake.jobs.status("orders", "bad").error is None


def test_a_retry_ends_where_it_was_going_to_end(lake: tailrace.Lake) -> None:
    table, recorder = orders(lake), Recorder(lake)
    recorder.error = RuntimeError("not today")
    lake.jobs.register("orders", "log", spec(recorder.kind))
    with pytest.raises(tailrace.JobFailedError):
        lake.run_until_fresh()
    table.append([{"id": 60, "v": "after the claim"}])
    recorder.error = None
    lake.run_until_fresh()
    first, *_, last = recorder.runs
    assert recorder.runs[:4] == [first] * 4
    assert last[1] == first[2]
    assert len(set(recorder.keys)) == 2
    assert recorder.net() == source_rows(lake)


def test_an_update_while_running_takes_effect_afterwards(lake: tailrace.Lake) -> None:
    table, recorder = orders(lake), Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    with lake.serving():
        assert recorder.started.wait(30)
        lake.jobs.update("orders", "log", {"trigger": {"job_type": "greedy"}})
        assert lake.jobs.status("orders", "log").state == "running"
        recorder.go.set()
        lake.jobs.wait("orders", "log", timeout=30)
        assert len(recorder.runs) == 1  # what ran was not disturbed
        table.append([{"id": 70, "v": "x"}])
        lake.jobs.wait("orders", "log", timeout=30)
    assert lake.jobs.status("orders", "log").spec["trigger"]["job_type"] == "greedy"
    assert recorder.net() == source_rows(lake)


def test_an_interrupting_update_stops_what_runs(lake: tailrace.Lake) -> None:
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    with lake.serving():
        assert recorder.started.wait(30)
        lake.jobs.update("orders", "log", {"priority": 7}, interrupt=True)
        recorder.go.set()
        lake.jobs.wait("orders", "log", timeout=30)
    first, second = recorder.runs
    assert first == second  # the first was not committed
    assert recorder.net() == source_rows(lake)


def test_a_clean_table_moves_only_the_watermark_in_memory(lake: tailrace.Lake) -> None:
    orders(lake)
    busy = orders(lake, "busy")
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    done = len(lake.jobs.history())
    for i in range(3):
        busy.append([{"id": 100 + i, "v": "x"}])
    lake.run_until_fresh()
    assert len(lake.jobs.history()) == done
    status = lake.jobs.status("orders", "copy")
    assert status.watermark == lake.snapshot


def test_a_new_job_does_not_delay_the_others_and_joins_them(lake: tailrace.Lake) -> None:
    table, old, new = orders(lake), Recorder(lake), Recorder(lake)
    lake.jobs.register("orders", "old", spec(old.kind))
    lake.run_until_fresh()
    new.go.clear()
    with lake.serving():
        lake.jobs.register("orders", "new", spec(new.kind))
        assert new.started.wait(30)
        for i in range(3):  # its first run hangs, and the others go on
            snapshot = table.append([{"id": 100 + i, "v": "busy"}])
            lake.jobs.wait("orders", "old", snapshot, timeout=30)
        assert lake.jobs.status("orders", "new").watermark is None
        new.go.set()
        lake.jobs.wait("orders", "new", timeout=30)
        snapshot = table.append([{"id": 200, "v": "together"}])
        lake.jobs.wait("orders", "new", snapshot, timeout=30)
        lake.jobs.wait("orders", "old", snapshot, timeout=30)
    assert old.runs[-1][1:] == new.runs[-1][1:]
    assert old.net() == new.net() == source_rows(lake)


def test_jobs_created_in_a_row_converge(lake: tailrace.Lake) -> None:
    table = orders(lake)
    recorders = [Recorder(lake) for _ in range(5)]
    with lake.serving():
        for number, recorder in enumerate(recorders):
            lake.jobs.register("orders", f"log{number}", spec(recorder.kind))
            table.append([{"id": 100 + number, "v": "x"}])
        for number in range(5):
            lake.jobs.wait("orders", f"log{number}", timeout=60)
        snapshot = table.append([{"id": 200, "v": "together"}])
        for number in range(5):
            lake.jobs.wait("orders", f"log{number}", snapshot, timeout=60)
    assert len({recorder.runs[-1][1:] for recorder in recorders}) == 1
    for recorder in recorders:
        assert recorder.net() == source_rows(lake)


def test_priorities_decide_under_a_full_queue(lake: tailrace.Lake) -> None:
    order: list[str] = []

    @tailrace.consumer("in_order")
    def in_order(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
        order.append(job.name)  # type: ignore[attr-defined]

    blocker = Recorder(lake)
    orders(lake)
    with lake.serving() as serving:
        serving.resize(1)
        blocker.go.clear()
        lake.jobs.register("orders", "blocker", spec(blocker.kind))
        assert blocker.started.wait(30)
        for name, priority in [("low", -1), ("middle", 0), ("high", 5), ("also_high", 5)]:
            lake.jobs.register("orders", name, spec("in_order", "greedy", priority=priority))
        wait_until(lambda: serving.service.scheduler.waiting == 4, what="a full queue")
        blocker.go.set()
        wait_until(lambda: len(order) == 4, what="all jobs")
    assert order == ["high", "also_high", "middle", "low"]


def test_closing_stops_what_runs_and_leaves_nothing_half_done(lake: tailrace.Lake) -> None:
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    serving = lake.serving()
    assert recorder.started.wait(30)
    (running,) = serving.service.scheduler._running
    closing = hold(serving.close)
    wait_until(running.stopped.is_set, what="the closing")
    assert closing.is_alive()  # it waits for what runs
    recorder.go.set()
    closing.join(30)
    assert not closing.is_alive()
    serving.close()
    status = lake.jobs.status("orders", "log")
    assert status.state == "new"
    assert status.watermark is None
    assert lake.table(recorder.table).to_arrow().num_rows == 0
    lake.run_until_fresh()
    assert recorder.runs[0] == recorder.runs[1]
    assert recorder.net() == source_rows(lake)


def test_a_drop_waits_for_what_runs_and_nothing_is_written_after(lake: tailrace.Lake) -> None:
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    with lake.serving():
        assert recorder.started.wait(30)
        dropping = hold(lambda: lake.jobs.unregister("orders", "log"))
        wait_until(lambda: not lake.jobs.list(), what="the drop")
        assert dropping.is_alive()
        with pytest.raises(tailrace.NotFoundError):
            lake.jobs.status("orders", "log")
        recorder.go.set()
        dropping.join(30)
        assert not dropping.is_alive()
        snapshot = lake.snapshot
        assert lake.table(recorder.table).to_arrow().num_rows == 0
    assert lake.snapshot == snapshot
    assert lake.jobs.history() == []


def test_a_running_spark_job_is_canceled_by_a_drop(lake: tailrace.Lake) -> None:
    orders(lake)
    started = threading.Event()

    @tailrace.consumer("endless")
    def endless(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
        started.set()
        lake.spark.range(0, 10**14, 1, 2).selectExpr("sum(id % 7)").collect()

    lake.jobs.register("orders", "endless", spec("endless"))
    with lake.serving():
        assert started.wait(30)
        tracker = lake.spark.sparkContext.statusTracker()
        wait_until(tracker.getActiveJobsIds, what="the Spark job")
        assert lake.jobs.unregister("orders", "endless")


def test_a_source_that_is_dropped_and_created_again_is_another_table(lake: tailrace.Lake) -> None:
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    lake.drop_table("orders")
    status = lake.jobs.status("orders", "copy")
    assert status.state == "error"
    assert status.error is not None
    assert "register the job again" in status.error
    assert not status.is_fresh
    with pytest.raises(tailrace.JobFailedError, match="register the job again"):
        lake.jobs.wait("orders", "copy")
    table = orders(lake, rows=2)
    with pytest.raises(tailrace.JobFailedError, match="register the job again"):
        lake.run_until_fresh()
    with pytest.raises(tailrace.InvalidError, match="register the job again"):
        lake.jobs.resume("orders", "copy")
    assert lake.table("orders_copy").to_arrow().num_rows == 5
    assert lake.jobs.register("orders", "copy", replica("orders_copy"))
    assert lake.jobs.status("orders", "copy").job_id != status.job_id
    assert lake.jobs.unregister("orders", "log")
    lake.run_until_fresh()
    table.append([{"id": 9, "v": "new"}])
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")


def test_a_job_may_not_feed_itself(lake: tailrace.Lake) -> None:
    orders(lake)

    @tailrace.consumer("echo")
    def echo(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
        target = job.options["to"]  # type: ignore[attr-defined]
        txn.table(target).upsert([{"id": 1000, "v": target}])

    def to(target: str) -> dict[str, object]:
        return {"consumer": {"kind": "echo", "to": target}}

    lake.jobs.register("orders", "self", to("orders"))
    with pytest.raises(tailrace.JobFailedError, match="would feed itself"):
        lake.run_until_fresh()
    assert lake.jobs.status("orders", "self").state == "error"
    lake.jobs.unregister("orders", "self")
    # Around: orders leads to middle, middle to the copy, and the copy back to orders.
    orders(lake, "middle")
    lake.jobs.register("orders", "there", to("middle"))
    lake.jobs.register("middle", "copy", replica("middle_copy"))
    lake.run_until_fresh()
    lake.jobs.register("middle_copy", "back", to("orders"))
    with pytest.raises(tailrace.JobFailedError, match=r"main\.middle_copy/back.*feed itself"):
        lake.run_until_fresh()
    assert lake.jobs.status("middle", "copy").is_fresh
    assert 1000 not in lake.table("orders").to_arrow().column("id").to_pylist()


def test_nobody_else_writes_to_a_derived_table(lake: tailrace.Lake) -> None:
    orders(lake)
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    copy = lake.table("orders_copy")
    for write in (
        lambda: copy.append([{"id": 99, "v": "x"}]),
        lambda: copy.upsert([{"id": 1, "v": "x"}]),
        lambda: copy.delete("id = 1"),
        lambda: copy.add_column("more", "int"),
        lambda: lake.drop_table("orders_copy"),
    ):
        with pytest.raises(tailrace.InvalidError, match="derived by a job"):
            write()
    assert same(lake, "orders", "orders_copy")
