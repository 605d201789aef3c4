"""Jobs that stand on jobs: one label, one commit, and who is to blame."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.propagation import joblog
from tailrace.propagation import tables as t
from tailrace.propagation.outputs import version_at
from tests.support import chains
from tests.support.chains import FAILS, GATES, RUNS, STARTED, base, check, labels, layer, row_at
from tests.support.jobs import hold
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

QUICK = tailrace.Settings(
    retry_first=timedelta(milliseconds=20), watch_interval=timedelta(milliseconds=50)
)
SELDOM = {"interval": "1h"}
# A failed try is not repeated while the test looks.
SLOW = tailrace.Settings(retry_first=timedelta(hours=1), retry_longest=timedelta(hours=1))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    chains.clear()
    yield
    for gate in GATES.values():
        gate.set()
    chains.clear()


@pytest.fixture
def lake(lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with lake_args.connect(settings=QUICK) as opened:
        yield opened


@pytest.fixture
def one_lake(sqlite_lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect(settings=QUICK) as opened:
        yield opened


@pytest.fixture
def slow_lake(sqlite_lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect(settings=SLOW) as opened:
        yield opened


def chain(lake: tailrace.Lake) -> tailrace.Table:
    table = base(lake, "t")
    layer(lake, "v1", ["t"])
    layer(lake, "v2", of=["v1"])
    layer(lake, "v3", of=["v2"])
    return table


def add(table: tailrace.Table, *ids: int) -> None:
    table.append([{"id": i} for i in ids])


def ran() -> list[str]:
    """Who ran since the last call, in order."""
    found = [name for name, _, _ in RUNS]
    RUNS.clear()
    return found


# --- one commit -----------------------------------------------------------------------------------


def test_a_chain_of_three_has_one_label_at_every_commit(lake: tailrace.Lake) -> None:
    table = chain(lake)
    lake.run_until_fresh()
    assert ran() == ["v1", "v2", "v3"]
    before = lake.snapshot
    add(table, 10, 11)
    lake.run_until_fresh()
    assert ran() == ["v1", "v2", "v3"]
    assert lake.snapshot == before + 2  # one commit for all three
    with lake.serving():
        for number in range(20, 26):
            add(table, number)
        for name in ("v1", "v2", "v3"):
            lake.jobs.wait(name, name, timeout=60)
    check(lake, ["v1", "v2", "v3"], together=True)
    row = row_at(lake, "v3")
    assert row is not None
    assert row["n"] == 10


def test_a_diamond_has_one_label_at_every_commit(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    one, two = base(lake, "t", 2), base(lake, "b", 3)
    layer(lake, "v1", ["t"])
    layer(lake, "v2", ["t", "b"], job_type="greedy")
    layer(lake, "v3", of=["v1", "v2"])
    layer(lake, "v4", ["b"], of=["v1"])
    names = ["v1", "v2", "v3", "v4"]
    lake.run_until_fresh()
    assert sorted(ran()) == names
    for number in range(3):
        add(one, 10 + number)
        if number != 1:
            add(two, 10 + number)
        before = lake.snapshot
        lake.run_until_fresh()
        assert sorted(ran()) == names
        assert lake.snapshot == before + 1
    check(lake, names, together=True)


def test_what_has_nothing_new_beneath_is_not_run(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    base(lake, "t")
    other = base(lake, "b")
    layer(lake, "v1", ["t"])
    layer(lake, "v2", ["b"], of=["v1"])
    lake.run_until_fresh()
    ran()
    before = row_at(lake, "v1")
    add(other, 10)
    lake.run_until_fresh()
    assert ran() == ["v2"]
    assert row_at(lake, "v1") == before
    check(lake, ["v1", "v2"])


def test_a_trigger_beneath_does_not_count_and_one_above_does(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table = base(lake, "t")
    layer(lake, "seldom", ["t"], job_type="periodic", schedule=SELDOM)
    layer(lake, "often", of=["seldom"])
    layer(lake, "late", of=["often"], job_type="periodic", schedule=SELDOM)
    lake.run_until_fresh()
    ran()
    with lake.serving():
        add(table, 10)
        lake.jobs.wait("often", "often", timeout=60)
    assert ran() == ["seldom", "often"]
    assert not lake.jobs.status("late", "late").is_fresh
    assert len(labels(lake, ["seldom", "often"])) == 1
    lake.jobs.wait("late", "late", timeout=60)  # alone asked for, and nothing beneath is behind
    assert ran() == ["late"]
    add(table, 11)
    lake.jobs.wait("late", "late", timeout=60)  # nobody serves: with all that is beneath
    assert ran() == ["seldom", "often", "late"]
    check(lake, ["seldom", "often", "late"])


def test_a_new_job_ends_where_those_beneath_it_are(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table, other = base(lake, "t"), base(lake, "b")
    layer(lake, "v1", ["t"])
    lake.run_until_fresh()
    add(other, 10)
    layer(lake, "v2", of=["v1"])
    layer(lake, "v3", ["b"], of=["v1"])
    lake.run_until_fresh()
    assert sorted(ran()) == ["v1", "v2", "v3"]
    add(table, 10)
    layer(lake, "v4", of=["v2"])
    lake.run_until_fresh()
    assert sorted(ran()) == ["v1", "v2", "v3", "v4"]
    assert len(labels(lake, ["v1", "v2", "v3", "v4"])) == 1
    check(lake, ["v1", "v2", "v3", "v4"])


def test_a_backlog_is_cut_for_all_of_a_chain(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect(settings=tailrace.Settings(iteration_snapshots=2)) as lake:
        table, other = base(lake, "t"), base(lake, "b")
        layer(lake, "v1", ["t"])
        layer(lake, "v2", ["b"], of=["v1"])
        lake.run_until_fresh()
        ran()
        for number in range(10, 16):
            add(table if number % 2 else other, number)
        lake.run_until_fresh()
        assert len(ran()) >= 5  # of each two or three
        check(lake, ["v1", "v2"])


def test_each_member_has_its_own_history(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table, other = base(lake, "t"), base(lake, "b")
    layer(lake, "v1", ["t"])
    lake.run_until_fresh()
    first = lake.snapshot
    layer(lake, "v2", ["b"], of=["v1"])
    add(table, 10, 11, 12)
    add(other, 10)
    lake.run_until_fresh()
    (one, _), (two,) = lake.jobs.history("v1", "v1"), lake.jobs.history("v2", "v2")
    assert one.from_snapshot is not None
    assert one.from_snapshot <= first
    assert (one.kind, one.rows_read) == ("tail", 3)
    assert (two.kind, two.from_snapshot, two.rows_read) == ("snapshot", None, 8)
    assert one.to_snapshot == two.to_snapshot
    assert (one.rows_written, two.rows_written) == (2, 1)  # an update, and a first row
    assert one.strategy == two.strategy == "layer"
    used = lake.usage()[0]
    assert (used.iterations, used.rows_written) == (3, 4)


# --- faults -------------------------------------------------------------------------------------


def test_a_failure_beneath_is_entered_there_and_holds_what_is_above(
    slow_lake: tailrace.Lake,
) -> None:
    lake = slow_lake
    table = chain(lake)
    lake.run_until_fresh()
    FAILS["v1"] = ConnectionError("not now")
    before = lake.snapshot
    with lake.serving():
        add(table, 10)
        wait_until(lambda: lake.jobs.status("v1", "v1").error, what="a failure")
        wait_until(lambda: lake.jobs.status("v3", "v3").state == "idle", what="rest")
    assert lake.snapshot == before + 1
    above = lake.jobs.status("v3", "v3")
    assert (above.error, above.tries) == (None, 0)
    assert above.note is not None
    assert "main.v1/v1" in above.note
    assert "not now" in above.note
    with pytest.raises(tailrace.JobFailedError, match=r"v1/v1.*not now.*v3/v3 .it waits for main"):
        lake.run_until_fresh()
    FAILS.clear()
    lake.run_until_fresh()
    check(lake, ["v1", "v2", "v3"], together=True)


def test_a_failure_above_does_not_hold_what_is_beneath(slow_lake: tailrace.Lake) -> None:
    lake = slow_lake
    table = chain(lake)
    lake.run_until_fresh()
    FAILS["v2"] = ConnectionError("not now")
    ran()
    with lake.serving():
        for number in (10, 11):
            add(table, number)
            lake.jobs.wait("v1", "v1", timeout=60)
        wait_until(lambda: lake.jobs.status("v2", "v2").state == "failing", what="rest")
    assert ran() == ["v1", "v2", "v1", "v1"]  # the first try, without v2, and the next change
    beneath, failed = lake.jobs.status("v1", "v1"), lake.jobs.status("v2", "v2")
    assert (beneath.error, beneath.is_fresh) == (None, True)
    assert failed.tries == 1
    assert "main.v2/v2" in (lake.jobs.status("v3", "v3").note or "")
    FAILS.clear()
    lake.run_until_fresh()
    assert ran() == ["v2", "v3"]  # further than it had begun to go: v1 went on without it
    check(lake, ["v1", "v2", "v3"])


def test_a_commit_that_fails_is_not_held_against_those_beneath(slow_lake: tailrace.Lake) -> None:
    lake = slow_lake
    table = base(lake, "t")
    layer(lake, "v1", ["t"])
    lake.create_table("elsewhere", {"id": "bigint"}, primary_key="id")

    @tailrace.consumer("colliding")
    def colliding(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
        txn.table("elsewhere").append([{"id": 1}])
        lake.table("elsewhere").append([{"id": 1}])  # another, and faster

    spec = {"consumer": {"kind": "colliding"}, "sources": ["t"]}
    lake.jobs.register(
        "c", "c", spec, upstream=[lake.jobs.status("v1", "v1").job_id], free_home=True
    )
    with lake.serving():
        lake.jobs.wait("v1", "v1", timeout=60)
        wait_until(lambda: lake.jobs.status("c", "c").error, what="a failure")
    assert lake.jobs.status("v1", "v1").error is None
    assert "same keys" in (lake.jobs.status("c", "c").error or "")
    assert table.name == "main.t"


def test_a_job_out_of_time_in_a_bundle_is_the_one_to_blame(slow_lake: tailrace.Lake) -> None:
    lake = slow_lake
    base(lake, "t")
    layer(lake, "v1", ["t"], timeout="1h")
    layer(lake, "v2", of=["v1"], timeout="300ms")
    GATES["v2"] = threading.Event()
    with lake.serving():
        wait_until(lambda: lake.jobs.status("v2", "v2").error, what="a time-out")
        GATES["v2"].set()
        lake.jobs.wait("v1", "v1", timeout=60)
    assert "longer than" in (lake.jobs.status("v2", "v2").error or "")
    assert lake.jobs.status("v1", "v1").tries == 0
    assert lake.jobs.status("v2", "v2").watermark is None


def test_a_job_canceled_in_a_bundle_leaves_it(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    chain(lake)
    STARTED["v2"], GATES["v2"] = threading.Event(), threading.Event()
    with lake.serving():
        assert STARTED["v2"].wait(60)
        lake.jobs.cancel("v2", "v2")
        GATES["v2"].set()
        lake.jobs.wait("v1", "v1", timeout=60)
        held = lake.jobs.status("v3", "v3")
        assert held.is_held
        assert held.note == "it waits for main.v2/v2, which is canceled"
        with pytest.raises(tailrace.JobFailedError, match=r"waits for main\.v2/v2"):
            lake.jobs.wait("v3", "v3", timeout=60)
        assert row_at(lake, "v2") is None
        lake.jobs.resume("v2", "v2")
        lake.jobs.wait("v3", "v3", timeout=60)
    check(lake, ["v1", "v2", "v3"])


# --- held ---------------------------------------------------------------------------------------


def test_a_paused_job_holds_what_stands_on_it(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table = chain(lake)
    lake.run_until_fresh()
    lake.jobs.pause("v1", "v1")
    assert not lake.jobs.status("v3", "v3").is_held  # nothing is missing yet
    add(table, 10)
    ran()
    lake.run_until_fresh()  # skipped, like the paused one
    assert ran() == []
    status = lake.jobs.status("v3", "v3")
    assert status.note == "it waits for main.v1/v1, which is paused"
    assert status.upstream == ("main.v1/v1", "main.v2/v2")
    lake.jobs.resume("v1", "v1")
    lake.run_until_fresh()
    check(lake, ["v1", "v2", "v3"], together=True)


def test_a_failed_job_holds_what_stands_on_it(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    chain(lake)
    FAILS["v1"] = tailrace.InvalidError("never")
    with pytest.raises(tailrace.JobFailedError, match=r"3 of the jobs still fail.*v2/v2 .it waits"):
        lake.run_until_fresh()
    assert lake.jobs.status("v2", "v2").is_held
    with pytest.raises(tailrace.JobFailedError, match=r"waits for main\.v1/v1, which is error"):
        lake.jobs.wait("v2", "v2", timeout=60)


def test_a_job_waits_for_one_beneath_that_runs(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table = base(lake, "t")
    layer(lake, "v1", ["t"])
    STARTED["v1"], GATES["v1"] = threading.Event(), threading.Event()
    with lake.serving():
        assert STARTED["v1"].wait(60)
        layer(lake, "v2", of=["v1"])
        add(table, 10)
        waiting = hold(lambda: lake.jobs.wait("v2", "v2", timeout=60))
        assert [name for name, _, _ in RUNS] == ["v1"]
        GATES["v1"].set()
        waiting.join(60)
        assert not waiting.is_alive()
    assert ran() == ["v1", "v1", "v2"]
    check(lake, ["v1", "v2"])


# --- register and drop ---------------------------------------------------------------------------


def test_a_job_is_not_dropped_while_others_stand_on_it(lake: tailrace.Lake) -> None:
    chain(lake)
    lake.run_until_fresh()
    with pytest.raises(tailrace.InvalidError, match=r"main\.v3/v3, main\.v2/v2.*cascade=True"):
        lake.jobs.unregister("v1", "v1")
    with lake.transaction() as txn:  # the highest first, in one transaction
        lake.jobs.unregister("v3", "v3", txn=txn)
        lake.jobs.unregister("v2", "v2", txn=txn)
    assert lake.jobs.unregister("v1", "v1")
    layer(lake, "v1", ["t"])
    layer(lake, "v2", of=["v1"])
    lake.run_until_fresh()
    assert lake.jobs.unregister("v1", "v1", cascade=True)
    assert lake.jobs.list() == []
    assert row_at(lake, "v1") is row_at(lake, "v2") is None
    with lake._runtime.database.read() as connection:
        assert connection.execute(sa.select(t.version)).all() == []


def test_a_drop_and_a_registration_on_top_do_not_pass_each_other(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    base(lake, "t")
    layer(lake, "v1", ["t"])
    txn = lake.transaction()
    lake.jobs.unregister("v1", "v1", txn=txn)
    layer(lake, "v2", of=["v1"])
    with pytest.raises(tailrace.InvalidError, match="read from it"):
        txn.commit()
    assert lake.jobs.status("v2", "v2").upstream == ("main.v1/v1",)


def test_the_upstream_of_a_job_is_all_of_it_the_farthest_first(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    base(lake, "t")
    one = layer(lake, "v1", ["t"])
    two = layer(lake, "v2", of=["v1"])
    three = layer(lake, "v3", ["t"])
    four = layer(lake, "v4", of=["v2", "v3", "v1"])
    with lake._runtime.database.read() as connection:
        assert joblog.upstream_of(connection, [four]) == {four: (one, two, three)}
    spec = {"consumer": {"kind": "layer"}, "sources": ["b"]}
    with pytest.raises(tailrace.InvalidError, match="name its sources"):
        lake.jobs.register("x", "x", {"consumer": {"kind": "layer"}}, free_home=True)
    base(lake, "b")
    with pytest.raises(tailrace.InvalidError, match=r"lack some of main\.v1/v1"):
        lake.jobs.register("x", "x", spec, upstream=[one], free_home=True)
    with pytest.raises(tailrace.ConflictError, match="not there: 999"):
        lake.jobs.register("x", "x", spec, upstream=[999], free_home=True)


def test_a_table_made_by_a_run_is_the_jobs_own(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    base(lake, "t")
    layer(lake, "v1", ["t"])
    lake.run_until_fresh()
    assert lake.jobs.status("v1", "v1").outputs == ("main.v1",)
    with pytest.raises(tailrace.InvalidError, match="derived by a job"):
        lake.table("v1").delete([{"k": 1}])
    layer(lake, "w", ["t"])
    lake.create_table("w", chains.COLUMNS, primary_key="k")

    @tailrace.consumer("greedy_owner")
    def greedy_owner(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
        job.owns("w")  # type: ignore[attr-defined]

    lake.jobs.register("t", "thief", {"consumer": {"kind": "greedy_owner"}})
    with pytest.raises(tailrace.JobFailedError, match=r"main\.w was not made by this run"):
        lake.run_until_fresh()


def test_versions_say_which_commit_reflects_a_label(one_lake: tailrace.Lake) -> None:
    lake = one_lake
    table = base(lake, "t")
    lake.create_table("empty", {"id": "bigint"}, primary_key="id")
    lake.jobs.register("empty", "copy", {"consumer": {"kind": "replica", "table": "empty_copy"}})
    layer(lake, "v1", ["t"])
    first = lake.snapshot
    lake.run_until_fresh()
    made = lake.snapshot
    add(table, 10)
    second = lake.snapshot
    lake.run_until_fresh()
    v1, copy = lake.table("v1").info.id, lake.table("empty_copy").info.id
    with lake._runtime.database.read() as connection:
        assert version_at(connection, v1, first - 1) is None
        assert version_at(connection, v1, first) == made
        assert version_at(connection, v1, second - 1) == made
        assert version_at(connection, v1, second) == lake.snapshot
        assert version_at(connection, copy, second) is not None  # empty, and known to be
