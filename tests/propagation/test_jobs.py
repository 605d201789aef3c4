"""`lake.jobs`: what can be asked for, what is refused, and what becomes of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.propagation import consumer
from tailrace.propagation import tables as t
from tailrace.propagation.node import Node
from tests.support.clock import MovableClock
from tests.support.jobs import Recorder, hold, orders, replica, same, spec
from tests.support.lakes import configure
from tests.support.process import wait_until
from tests.support.rows import bag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("replica", "takes a dict"),
        ({}, "needs a consumer"),
        ({"consumer": {}}, "needs a consumer"),
        ({"consumer": {"kind": 3}}, "needs a consumer"),
        ({"consumer": {"kind": "x"}, "colour": "red"}, "no field 'colour'"),
        ({"consumer": {"kind": "x"}, "priority": "high"}, "a whole number"),
        ({"consumer": {"kind": "x"}, "priority": True}, "a whole number"),
        ({"consumer": {"kind": "x"}, "timeout": "soon"}, "cannot read the interval"),
        ({"consumer": {"kind": "x"}, "timeout": -1}, "cannot read the interval"),
        ({"consumer": {"kind": "x"}, "timeout": float("nan")}, "has to be JSON"),
        ({"consumer": {"kind": "x"}, "trigger": "greedy"}, "a trigger is"),
        ({"consumer": {"kind": "x"}, "trigger": {"job_type": "often"}}, "no trigger 'often'"),
        ({"consumer": {"kind": "x"}, "trigger": {"job_type": "periodic"}}, "needs an interval"),
        (
            {
                "consumer": {"kind": "x"},
                "trigger": {"job_type": "periodic", "schedule": {"interval": "1 year"}},
            },
            "cannot read the interval",
        ),
        ({"consumer": {"kind": "x"}, "sources": "orders"}, "a list of table names"),
        ({"consumer": {"kind": "x"}, "sources": ["orders", "ORDERS"]}, "a table twice"),
        ({"consumer": {"kind": "x", "when": date(2026, 1, 1)}}, "has to be JSON"),
        ({"consumer": {"kind": "replica"}}, "needs the name of its table"),
        ({"consumer": {"kind": "replica", "table": "c", "colour": 1}}, "no option 'colour'"),
        ({"consumer": {"kind": "replica", "table": "orders"}}, "exists already"),
        ({"consumer": {"kind": "replica", "table": "c", "columns": "id"}}, "a list of names"),
        ({"consumer": {"kind": "replica", "table": "c", "columns": ["z"]}}, "no column 'z'"),
        ({"consumer": {"kind": "replica", "table": "c", "where": "z > 1"}}, "no column 'z'"),
        ({"consumer": {"kind": "replica", "table": "c", "where": "id >"}}, "cannot read"),
        (
            {"consumer": {"kind": "replica", "table": "c", "where": "id = (select 1)"}},
            "about one row",
        ),
        (
            {"consumer": {"kind": "replica", "table": "c", "where": "rand() > 0.5"}},
            "does not always say the same",
        ),
        (
            {"consumer": {"kind": "replica", "table": "c", "where": "v > now()"}},
            "does not always say the same",
        ),
        ({"consumer": {"kind": "replica", "table": "c", "where": "1"}}, "is no condition"),
        ({"consumer": {"kind": "replica", "table": "c", "where": "id > 1; id"}}, "cannot read"),
    ],
)
def test_a_bad_spec_is_refused_and_changes_nothing(
    sqlite_lake: tailrace.Lake, given: Any, message: str
) -> None:
    orders(sqlite_lake)
    before = sqlite_lake.snapshot
    with pytest.raises((tailrace.InvalidError, tailrace.NotFoundError), match=message):
        sqlite_lake.jobs.register("orders", "job", given)
    assert sqlite_lake.jobs.list() == []
    assert sqlite_lake.snapshot == before


def test_what_does_not_exist_is_named(sqlite_lake: tailrace.Lake) -> None:
    jobs = sqlite_lake.jobs
    with pytest.raises(tailrace.NotFoundError, match=r"no table main\.nothing"):
        jobs.register("nothing", "job", spec("x"))
    orders(sqlite_lake)
    with pytest.raises(tailrace.InvalidError, match="a name of 1 to 255 characters"):
        jobs.register("orders", "", spec("x"))
    for call in (
        lambda: jobs.status("orders", "job"),
        lambda: jobs.pause("orders", "job"),
        lambda: jobs.resume("orders", "job"),
        lambda: jobs.cancel("orders", "job"),
        lambda: jobs.update("orders", "job", {"priority": 1}),
        lambda: jobs.wait("orders", "job"),
        lambda: jobs.history("orders", "job"),
    ):
        with pytest.raises(tailrace.NotFoundError, match=r"there is no job main\.orders/job"):
            call()
    with pytest.raises(tailrace.InvalidError, match="no job is ever 'asleep'"):
        jobs.list("asleep")


def test_an_update_overwrites_what_it_names(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    orders(lake)
    lake.jobs.register("orders", "log", spec("x", "greedy", priority=3, timeout="1m"))
    lake.jobs.update("orders", "log", {"priority": 5, "trigger": {}, "timeout": None})
    now = lake.jobs.status("orders", "log").spec
    assert now["priority"] == 5
    assert now["trigger"]["job_type"] == "greedy"
    assert now["timeout"] == "1m"
    lake.jobs.update("orders", "log", {"consumer": {"colour": "red"}})
    assert lake.jobs.status("orders", "log").spec["consumer"] == {"kind": "x", "colour": "red"}
    for bad in ({"consumer": {"kind": "y"}}, {"sources": ["other"]}, {"priority": "x"}):
        with pytest.raises(tailrace.InvalidError):
            lake.jobs.update("orders", "log", bad)
    lake.jobs.register("orders", "copy", replica("copy"))
    with pytest.raises(tailrace.InvalidError, match="cannot be changed"):
        lake.jobs.update("orders", "copy", {"consumer": {"where": "id > 1"}})


def test_registration_is_part_of_the_users_transaction(lake: tailrace.Lake) -> None:
    txn = lake.transaction()
    txn.create_table("orders", {"id": "bigint", "v": "string"}, primary_key="id")
    assert lake.jobs.register("orders", "copy", replica("orders_copy"), txn=txn)
    txn.rollback()
    assert lake.jobs.list() == []
    assert lake.tables() == []
    with lake.transaction() as txn:
        table = txn.create_table("orders", {"id": "bigint", "v": "string"}, primary_key="id")
        table.append([{"id": 1, "v": "x"}])
        assert lake.jobs.register("orders", "copy", replica("orders_copy"), txn=txn)
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    with lake.transaction() as txn:
        lake.jobs.pause("orders", "copy", txn=txn)
        lake.jobs.update("orders", "copy", {"priority": 2}, txn=txn)
        assert lake.jobs.status("orders", "copy").state == "idle"
    assert lake.jobs.status("orders", "copy").state == "paused"
    old = lake.jobs.status("orders", "copy").job_id
    with lake.transaction() as txn:  # another job in its place, at once
        assert lake.jobs.unregister("orders", "copy", txn=txn)
        assert lake.jobs.unregister("orders", "copy", txn=txn) is False
        assert lake.jobs.register("orders", "copy", replica("orders_copy"), txn=txn)
    assert lake.jobs.status("orders", "copy").job_id != old
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    with lake.transaction() as txn:
        assert lake.jobs.unregister("orders", "copy", txn=txn)
        txn.drop_table("orders")
    assert lake.tables() == []
    assert lake.jobs.list() == []


def test_two_registrations_at_once_have_one_winner(lake: tailrace.Lake) -> None:
    orders(lake)
    one, two = lake.transaction(), lake.transaction()
    assert lake.jobs.register("orders", "log", spec("x"), txn=one)
    assert lake.jobs.register("orders", "log", spec("y"), txn=two)
    one.commit()
    with pytest.raises(tailrace.ConflictError, match="another transaction registered"):
        two.commit()
    assert lake.jobs.status("orders", "log").kind == "x"


def test_a_source_that_was_replaced_before_the_commit_is_a_conflict(lake: tailrace.Lake) -> None:
    orders(lake)
    txn = lake.transaction()
    lake.jobs.register("orders", "log", spec("x"), txn=txn)
    lake.drop_table("orders")
    orders(lake)
    with pytest.raises(tailrace.ConflictError, match=r"dropped main\.orders"):
        txn.commit()
    assert lake.jobs.list() == []


def test_a_transaction_knows_the_jobs_that_it_registers(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    orders(lake)
    with lake.transaction() as txn:
        assert lake.jobs.register("orders", "log", spec("x"), txn=txn)
        assert lake.jobs.register("orders", "LOG", spec("x"), txn=txn) is False
        lake.jobs.pause("orders", "log", txn=txn)
        with pytest.raises(tailrace.NotFoundError, match="no job"):
            lake.jobs.pause("orders", "other", txn=txn)
        with pytest.raises(tailrace.InvalidError, match="by this very transaction"):
            lake.jobs.unregister("orders", "log", txn=txn)
    assert lake.jobs.status("orders", "log").state == "paused"


def test_a_job_needs_its_table_even_if_it_follows_others(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    with pytest.raises(tailrace.NotFoundError, match=r"no table main\.nothing"):
        sqlite_lake.jobs.register("nothing", "log", {**spec("x"), "sources": ["orders"]})


def test_times_and_dates_have_their_types(sqlite_lake: tailrace.Lake) -> None:
    for timeout in ("10s", -1, True):
        with pytest.raises(tailrace.InvalidError, match="a number of seconds"):
            sqlite_lake.run_until_fresh(timeout)  # type: ignore[arg-type]
    with pytest.raises(tailrace.InvalidError, match="takes a whole number"):
        sqlite_lake.jobs.wait("orders", "log", "5")  # type: ignore[arg-type]
    with pytest.raises(tailrace.InvalidError, match="takes a date"):
        sqlite_lake.usage("2026-01-01")  # type: ignore[arg-type]


def test_history_and_usage_are_of_what_was_asked_for(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    orders(lake)
    orders(lake, "other")
    lake.jobs.register("other", "copy", replica("other_copy"))
    lake.run_until_fresh()
    assert len(lake.jobs.history("other")) == 1
    assert lake.jobs.history("orders") == []
    now = datetime.now(UTC)
    assert lake.usage(since=now) == lake.usage(since=now.date())


def test_wait_goes_on_when_the_node_that_served_has_left(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark) as lake:
        configure(lake, node_timeout=timedelta(seconds=1))
        orders(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        Node(lake._runtime, beating=False)  # entered, and never heard of again
        lake.jobs.wait("orders", "copy", timeout=30)
        assert same(lake, "orders", "orders_copy")


def test_a_paused_job_is_skipped_and_resumes(lake: tailrace.Lake) -> None:
    table, recorder = orders(lake), Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    lake.jobs.pause("orders", "log")
    assert [job.name for job in lake.jobs.list("paused")] == ["log"]
    lake.run_until_fresh()
    assert recorder.runs == []
    with pytest.raises(tailrace.JobFailedError, match="it is paused"):
        lake.jobs.wait("orders", "log")
    lake.jobs.resume("orders", "log")
    lake.run_until_fresh()
    assert recorder.net() == bag(table.to_arrow())


def test_a_job_that_is_paused_while_it_runs_may_end_and_stays_paused(lake: tailrace.Lake) -> None:
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    with lake.serving():
        assert recorder.started.wait(30)
        lake.jobs.pause("orders", "log")
        recorder.go.set()
        wait_until(lambda: lake.jobs.status("orders", "log").is_fresh, what="the end of the run")
    assert lake.jobs.status("orders", "log").state == "paused"


def test_cancel_stops_what_runs_until_resume(lake: tailrace.Lake) -> None:
    table, recorder = orders(lake), Recorder(lake)
    lake.jobs.register("orders", "log", spec(recorder.kind))
    recorder.go.clear()
    with lake.serving() as serving:
        assert recorder.started.wait(30)
        lake.jobs.cancel("orders", "log")
        recorder.go.set()
        wait_until(lambda: not serving.service.scheduler.running, what="the end of the run")
        assert lake.jobs.status("orders", "log").state == "canceled"
        assert lake.table(recorder.table).to_arrow().num_rows == 0
        lake.jobs.resume("orders", "log")
        lake.jobs.wait("orders", "log", timeout=30)
    assert recorder.runs[0] == recorder.runs[1]
    assert recorder.net() == bag(table.to_arrow())


def test_wait_does_the_work_if_nobody_else_does(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    table, other = orders(lake), orders(lake, "other")
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.jobs.register("other", "copy", replica("other_copy"))
    with pytest.raises(tailrace.InvalidError, match="no snapshot 999 yet"):
        lake.jobs.wait("orders", "copy", 999)
    lake.jobs.wait("orders", "copy")
    assert same(lake, "orders", "orders_copy")
    assert not lake.jobs.status("other", "copy").is_fresh
    assert table.name != other.name


def test_dropped_rows_and_old_history_go_and_usage_stays(
    lake_args: LakeArgs, spark: SparkSession
) -> None:
    clock = MovableClock()
    with lake_args.connect(spark=spark, clock=clock) as lake:
        table = orders(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        lake.jobs.register("orders", "gone", replica("gone_copy"))
        lake.run_until_fresh()
        lake.jobs.unregister("orders", "gone")
        before = lake.usage(since=date(2020, 1, 1))
        assert [(u.iterations, u.rows_read, u.rows_written) for u in before] == [(2, 10, 10)]
        assert before[0].tenant == "default"
        clock.advance(timedelta(days=9))
        table.append([{"id": 100, "v": "x"}])
        lake.run_until_fresh()  # its first turn is also the hour's housekeeping
        with lake._runtime.database.read() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(t.job)).scalar() == 1
        assert len(lake.jobs.history()) == 1
        old, new = lake.usage(since=date(2020, 1, 1))
        assert old == before[0]
        assert (new.iterations, new.rows_read) == (1, 1)
        assert new.day - old.day == timedelta(days=9)
        assert lake.usage(since=new.day) == [new]


def test_watermarks_that_moved_in_memory_are_stored_by_the_hour(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    clock = MovableClock()
    with sqlite_lake_args.connect(spark=spark, clock=clock) as lake:
        orders(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        lake.run_until_fresh()

        def stored() -> int:
            with lake._runtime.database.read() as connection:
                return int(connection.execute(sa.select(t.job.c.watermark)).scalar_one())

        first = stored()
        with lake.serving() as serving:
            other = orders(lake, "other")
            other.append([{"id": 100, "v": "x"}])
            service = serving.service
            # The hour begins with the first housekeeping, which stores nothing.
            wait_until(lambda: service.housekeeping.last is not None, what="the first time")
            wait_until(lambda: service.runner.cache.snapshot == lake.snapshot, what="a look")
            assert stored() == first
            clock.advance(timedelta(hours=1, minutes=1))
            service._wake.set()
            wait_until(lambda: stored() == lake.snapshot, what="the hour's housekeeping")
        assert lake.jobs.status("orders", "copy").state == "idle"


def test_a_late_flush_does_not_bring_a_dropped_job_back(sqlite_lake: tailrace.Lake) -> None:
    from tailrace.propagation import joblog

    orders(sqlite_lake)
    sqlite_lake.jobs.register("orders", "copy", replica("orders_copy"))
    sqlite_lake.run_until_fresh()
    job = sqlite_lake.jobs.status("orders", "copy")
    with sqlite_lake._runtime.database.read() as connection:
        stored = joblog.records_by_id(connection, [job.job_id])[job.job_id].watermark
    sqlite_lake.jobs.unregister("orders", "copy")
    with sqlite_lake._runtime.database.lock() as connection:
        assert joblog.advance(connection, {job.job_id: (stored, stored + 5)}) == 0
        assert joblog.records_by_id(connection, [job.job_id])[job.job_id].watermark == stored
    assert sqlite_lake.jobs.list() == []


def test_a_chain_of_jobs_becomes_fresh_in_one_call(lake: tailrace.Lake) -> None:
    table = orders(lake)
    lake.jobs.register("orders", "one", replica("first_copy"))
    lake.jobs.register("first_copy", "two", replica("second_copy"))
    lake.run_until_fresh()
    table.upsert([{"id": 1, "v": "changed"}])
    table.delete([{"id": 2}])
    lake.run_until_fresh()
    assert same(lake, "orders", "second_copy")


def test_a_user_trigger_decides_when(sqlite_lake: tailrace.Lake) -> None:
    @tailrace.trigger("never_before")
    class NeverBefore(tailrace.Trigger):
        def due(self, watermark_time: Any, now: Any) -> Any:
            assert watermark_time is not None
            if self.schedule.get("broken"):
                raise RuntimeError("no idea")
            return now + timedelta(days=1)

    table, recorder = orders(sqlite_lake), Recorder(sqlite_lake)
    other = Recorder(sqlite_lake)
    jobs = sqlite_lake.jobs
    jobs.register("orders", "later", spec(recorder.kind, "never_before"))
    jobs.register("orders", "broken", spec(recorder.kind, "never_before", schedule={"broken": 1}))
    jobs.register("orders", "now", spec(other.kind))
    with sqlite_lake.serving():
        for name in ("later", "broken", "now"):
            jobs.wait("orders", name, timeout=30)  # the first run is at once
        snapshot = table.append([{"id": 100, "v": "x"}])
        jobs.wait("orders", "now", snapshot, timeout=30)
        assert not jobs.status("orders", "later").is_fresh
        assert not jobs.status("orders", "broken").is_fresh
    sqlite_lake.run_until_fresh()  # triggers don't count here
    assert all(job.is_fresh for job in jobs.list())


def test_a_periodic_job_runs_when_its_watermark_is_old(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    clock = MovableClock()
    with sqlite_lake_args.connect(spark=spark, clock=clock) as lake:
        table, recorder = orders(lake), Recorder(lake)
        schedule = {"interval": "10m"}
        lake.jobs.register("orders", "log", spec(recorder.kind, "periodic", schedule=schedule))
        with lake.serving() as serving:
            lake.jobs.wait("orders", "log", timeout=30)
            for i in range(3):
                table.append([{"id": 100 + i, "v": "x"}])
            cache = serving.service.runner.cache
            wait_until(lambda: cache.snapshot == lake.snapshot, what="a look")
            assert len(recorder.runs) == 1
            clock.advance(timedelta(minutes=11))
            serving.service._wake.set()
            wait_until(lambda: lake.jobs.status("orders", "log").is_fresh, what="the run")
            assert len(recorder.runs) == 2  # one for all three
        assert recorder.net() == bag(table.to_arrow())


def test_commits_of_other_processes_are_noticed(lake_args: LakeArgs, spark: SparkSession) -> None:
    """Another lake object is as far away as another process: only the catalog connects them."""
    settings = tailrace.Settings(reconcile_interval=timedelta(hours=1))
    with (
        lake_args.connect(spark=spark, settings=settings) as lake,
        lake_args.connect(spark=spark) as far,
        lake.serving(),
    ):
        orders(far)
        far.jobs.register("orders", "copy", replica("orders_copy"))
        far.jobs.wait("orders", "copy", timeout=30)
        snapshot = far.table("orders").append([{"id": 100, "v": "x"}])
        assert snapshot is not None
        far.jobs.wait("orders", "copy", snapshot, timeout=30)
        assert same(far, "orders", "orders_copy")


def test_a_drop_from_another_process_waits_for_the_node_that_runs(
    lake_args: LakeArgs, spark: SparkSession
) -> None:
    with lake_args.connect(spark=spark) as lake, lake_args.connect(spark=spark) as far:
        orders(lake)
        recorder = Recorder(lake)
        lake.jobs.register("orders", "log", spec(recorder.kind))
        recorder.go.clear()
        with lake.serving():
            assert recorder.started.wait(30)
            dropping = hold(lambda: far.jobs.unregister("orders", "log"))
            wait_until(lambda: not lake.jobs.list(), what="the drop")
            assert dropping.is_alive()
            recorder.go.set()
            dropping.join(30)
            assert not dropping.is_alive()
        assert lake.table(recorder.table).to_arrow().num_rows == 0


def test_a_name_with_dots_and_backticks_is_a_name(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake, "`a.b``c`")
    sqlite_lake.jobs.register("`a.b``c`", "the copy", replica("`copy.of`"))
    sqlite_lake.run_until_fresh()
    assert same(sqlite_lake, "`a.b``c`", "`copy.of`")
    assert sqlite_lake.jobs.unregister("`a.b``c`", "the copy")
    assert len(sqlite_lake.tables()) == 1


def test_jobs_that_one_transaction_registers_are_entered_at_once(lake: tailrace.Lake) -> None:
    tables = [f"t{number}" for number in range(3)]
    with lake.transaction() as txn:
        for table in tables:
            txn.create_table(table, {"id": "bigint"}, primary_key="id")
    said: list[str] = []
    engine = lake._runtime.database.engine
    listener = lambda *args: said.append(args[2])  # noqa: E731
    with lake.transaction() as txn:
        for number in range(300):
            assert lake.jobs.register(tables[number % 3], f"j{number}", spec("x"), txn=txn)
        sa.event.listen(engine, "before_cursor_execute", listener)
    sa.event.remove(engine, "before_cursor_execute", listener)
    assert len(said) < 30  # while nobody else can commit
    assert len(lake.jobs.list("new")) == 300
    with lake._runtime.database.read() as connection:
        rows = connection.execute(sa.select(t.job.c.job_id, t.job.c.lsn)).all()
    assert len({row.job_id for row in rows}) == len({row.lsn for row in rows}) == 300
    # Each in its turn where something else comes between.
    with lake.transaction() as txn:
        lake.jobs.register("t0", "first", spec("x"), txn=txn)
        lake.jobs.unregister("t0", "j0", txn=txn)
        lake.jobs.register("t0", "j0", spec("x", priority=7), txn=txn)
    assert lake.jobs.status("t0", "j0").spec["priority"] == 7
    assert len(lake.jobs.list()) == 301


def test_a_registration_whose_table_another_drops_fails_the_commit(lake: tailrace.Lake) -> None:
    orders(lake)
    txn = lake.transaction()
    lake.jobs.register("orders", "log", spec("x"), txn=txn)
    lake.drop_table("orders")
    with pytest.raises(tailrace.ConflictError, match="dropped"):
        txn.commit()
    orders(lake)
    txn = lake.transaction()
    lake.jobs.register("orders", "log", spec("x"), txn=txn)
    lake.jobs.register("orders", "LOG", spec("x"))
    with pytest.raises(tailrace.ConflictError, match="registered"):
        txn.commit()


def test_a_part_that_cannot_be_imported_leaves_the_other_jobs_alone(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = sqlite_lake
    orders(lake)
    recorder = Recorder(lake)
    lake.jobs.register("orders", "odd", spec("of_a_part"))
    lake.jobs.register("orders", "log", spec(recorder.kind))
    monkeypatch.setitem(consumer._modules, "of_a_part", "tailrace.no_such_part")
    with pytest.raises(tailrace.JobFailedError, match=r"orders/odd .*no_such_part"):
        lake.run_until_fresh()
    assert lake.jobs.status("orders", "log").is_fresh
    assert "cannot be imported" in str(lake.jobs.status("orders", "odd").note)
    with pytest.raises(tailrace.InvalidError, match="no_such_part"):
        lake.jobs.register("orders", "another", spec("of_a_part"))
    monkeypatch.delitem(consumer._broken, "of_a_part")
