"""Iterations: what consumers get, how much at once, and what becomes of faults."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.propagation import tables as t
from tailrace.propagation.iteration import Iterations
from tailrace.propagation.job import Member, Work
from tailrace.propagation.job_cache import read_news
from tailrace.propagation.joblog import with_sources
from tailrace.propagation.node import Node
from tailrace.propagation.scheduler import Execution
from tailrace.store.changes import DELETE, INSERT
from tests.support.jobs import ORDERS, Recorder, orders, replica, same, spec
from tests.support.process import wait_until
from tests.support.rows import bag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


def opened(args: LakeArgs, spark: SparkSession, **settings: Any) -> tailrace.Lake:
    return args.connect(spark=spark, settings=tailrace.Settings(**settings))


def test_a_consumer_gets_frames_and_batches(sqlite_lake: tailrace.Lake) -> None:
    table = orders(sqlite_lake, rows=3)
    seen: list[tuple[str, list[Any], list[Any]]] = []

    @tailrace.consumer("frames")
    def frames(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        inserts = changes.inserts.toArrow()
        deletes = changes["main.orders"].deletes.toArrow()
        assert inserts.column_names == deletes.column_names == ["id", "v"]
        assert sum(batch.num_rows for batch in changes.batches()) == len(inserts) + len(deletes)
        assert changes.rows >= len(inserts) + len(deletes)
        seen.append((str(changes.kind), bag(inserts), bag(deletes)))

    sqlite_lake.jobs.register("orders", "frames", spec("frames"))
    sqlite_lake.run_until_fresh()
    table.upsert([{"id": 1, "v": "changed"}])
    table.delete([{"id": 2}])
    sqlite_lake.run_until_fresh()
    assert seen == [
        ("snapshot", [(0, "first"), (1, "first"), (2, "first")], []),
        ("tail", [(1, "changed")], [(1, "first"), (2, "first")]),
    ]


def test_large_changes_come_through_spark_and_in_pieces(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.propagation.changes._BATCH_ROWS", 300)
    with opened(sqlite_lake_args, spark, local_rows=100) as lake:
        table, recorder = orders(lake, rows=600), Recorder(lake)
        lake.jobs.register("orders", "log", spec(recorder.kind))
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        lake.run_until_fresh()
        table.upsert([{"id": i, "v": "again"} for i in range(0, 1000, 3)])
        table.delete("id % 7 = 0")
        lake.run_until_fresh()
        assert recorder.net() == bag(table.to_arrow())
        assert same(lake, "orders", "orders_copy")
        assert lake.jobs.history("orders", "copy")[0].strategy == "spark"


def test_each_job_gets_the_columns_that_it_asked_for(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    lake.create_table(
        "wide", {"id": "bigint", "a": "int", "b": "int", "c": "int"}, primary_key="id"
    )
    lake.table("wide").append([{"id": 1, "a": 2, "b": 3, "c": 4}])
    got: dict[str, list[str]] = {}

    def take(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        got[job.name] = changes.inserts.columns

    tailrace.consumer("only_a", columns=["a"])(take)
    tailrace.consumer("only_b", columns={"main.wide": ["b"]})(take)
    tailrace.consumer("no_such", columns=["nothing"])(take)
    for kind in ("only_a", "only_b", "no_such"):
        lake.jobs.register("wide", kind, spec(kind))
    with pytest.raises(tailrace.JobFailedError, match=r"wide/no_such.*no column 'nothing'"):
        lake.run_until_fresh()
    assert got == {"only_a": ["id", "a"], "only_b": ["id", "b"]}
    assert lake.jobs.status("wide", "no_such").state == "error"  # its own mistake, for good


def test_a_job_may_have_several_sources(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    left, right = orders(lake, "left", 2), orders(lake, "right", 3)
    seen: list[tuple[int, int]] = []

    @tailrace.consumer("two")
    def two(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        assert list(changes) == ["main.left", "main.right"]
        with pytest.raises(tailrace.InvalidError, match="several sources"):
            _ = changes.inserts
        seen.append((changes["left"].inserts.count(), changes["right"].inserts.count()))

    lake.jobs.register("left", "both", {"sources": ["left", "right"], "consumer": {"kind": "two"}})
    lake.run_until_fresh()
    right.append([{"id": 10, "v": "x"}])
    lake.run_until_fresh()
    with lake.transaction() as txn:
        txn.table("left").append([{"id": 11, "v": "x"}])
        txn.table("right").append([{"id": 11, "v": "x"}])
    lake.run_until_fresh()
    assert seen == [(2, 3), (0, 1), (1, 1)]
    assert left.name in lake.jobs.status("left", "both").sources


def test_what_a_consumer_remembers_commits_with_its_output(sqlite_lake: tailrace.Lake) -> None:
    table = orders(sqlite_lake)
    fails = [True]
    remembered: list[int] = []

    @tailrace.consumer("counting")
    def counting(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        remembered.append(job.memory.get("runs", 0))
        job.memory["runs"] = job.memory.get("runs", 0) + 1
        if fails[0]:
            raise ConnectionError("away")

    sqlite_lake.jobs.register("orders", "counting", spec("counting"))
    with pytest.raises(tailrace.JobFailedError):
        sqlite_lake.run_until_fresh()
    fails[0] = False
    sqlite_lake.run_until_fresh()
    table.append([{"id": 100, "v": "x"}])
    sqlite_lake.run_until_fresh()
    assert remembered == [0, 0, 0, 0, 1]


def test_a_large_backlog_is_worked_off_in_several(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with opened(sqlite_lake_args, spark, iteration_rows=25, iteration_snapshots=4) as lake:
        table, recorder = orders(lake, rows=0), Recorder(lake)
        lake.jobs.register("orders", "log", spec(recorder.kind))
        lake.run_until_fresh()
        for i in range(9):
            table.append([{"id": 10 * i + j, "v": "x"} for j in range(10)])
        table.append([{"id": 1000 + j, "v": "x"} for j in range(40)])  # too much, but one snapshot
        for i in range(9):
            table.append([{"id": 2000 + i, "v": "x"}])
        lake.run_until_fresh()
        assert recorder.net() == bag(table.to_arrow())
        tails = [done.rows_read for done in reversed(lake.jobs.history("orders", "log"))][1:]
        assert tails == [20, 20, 20, 20, 10, 40, 4, 4, 1]


def test_a_job_is_rebuilt_when_its_history_is_gone(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    table = orders(lake)
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    lake.run_until_fresh()
    table.delete([{"id": 1}])
    table.append([{"id": 10, "v": "x"}])
    with lake._runtime.database.lock() as connection:  # as if old snapshots had been expired
        stored = connection.execute(sa.select(t.job.c.watermark)).scalar_one()
        connection.execute(sa.delete(dl.snapshot).where(dl.snapshot.c.snapshot_id <= stored))
    lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    rebuilt, first = lake.jobs.history("orders", "copy")
    assert (rebuilt.kind, rebuilt.from_snapshot) == ("snapshot", first.to_snapshot)


def test_an_iteration_that_takes_too_long_is_given_up(
    lake_args: LakeArgs, spark: SparkSession
) -> None:
    with opened(lake_args, spark, retry_first=timedelta(milliseconds=10)) as lake:
        lake.configure(node_timeout=timedelta(seconds=5))
        table, slow = orders(lake), Recorder(lake)
        other = orders(lake, "other")
        lake.jobs.register("orders", "slow", spec(slow.kind, timeout="2s"))
        lake.jobs.register("other", "copy", replica("other_copy"))
        slow.go.clear()
        with lake.serving() as serving:
            assert slow.started.wait(30)
            wait_until(
                lambda: lake.jobs.status("orders", "slow").error is not None, what="a time-out"
            )
            status = lake.jobs.status("orders", "slow")
            assert status.error is not None
            assert "longer than 2 seconds" in status.error
            assert serving.service.scheduler.counts["timed out"] >= 1
            snapshot = other.append([{"id": 50, "v": "x"}])
            lake.jobs.wait("other", "copy", snapshot, timeout=30)  # its worker is free again
            slow.go.set()  # the old threads go on now, and may not commit
            table.append([{"id": 60, "v": "x"}])
            lake.jobs.wait("orders", "slow", timeout=30)
        assert slow.net() == bag(table.to_arrow())


def test_an_error_that_stays_unknown_becomes_permanent(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = {"retry_first": timedelta(milliseconds=1), "retry_limit": 4}
    with opened(sqlite_lake_args, spark, **settings) as lake:
        orders(lake)
        bad = Recorder(lake)
        bad.error = RuntimeError("who knows")
        lake.jobs.register("orders", "bad", spec(bad.kind))
        with lake.serving():
            wait_until(lambda: lake.jobs.list("error"), what="the permanent error")
        status = lake.jobs.status("orders", "bad")
        assert (status.error_code, status.tries) == (10_999, 4)
        assert len(bad.runs) == 4
        bad.error = None
        lake.jobs.resume("orders", "bad")
        lake.run_until_fresh()
        assert lake.jobs.status("orders", "bad").error is None


def test_invalid_input_is_a_permanent_error_at_once(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    bad = Recorder(sqlite_lake)
    bad.error = tailrace.InvalidError("that will never work")
    sqlite_lake.jobs.register("orders", "bad", spec(bad.kind))
    with pytest.raises(tailrace.JobFailedError, match="that will never work"):
        sqlite_lake.run_until_fresh()
    assert len(bad.runs) == 1
    assert sqlite_lake.jobs.status("orders", "bad").state == "error"


def test_a_consumer_that_is_not_known_here_is_left_alone(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    orders(lake)
    assert lake.jobs.register("orders", "far", spec("defined_elsewhere"))
    lake.jobs.register("orders", "copy", replica("orders_copy"))
    note = lake.jobs.status("orders", "far").note
    assert note is not None
    assert "import the module" in note
    with pytest.raises(tailrace.JobFailedError, match=r"main\.orders/far .no consumer"):
        lake.run_until_fresh()
    assert same(lake, "orders", "orders_copy")
    assert lake.jobs.status("orders", "far").tries == 0


def test_jobs_may_commit_together(lake: tailrace.Lake) -> None:
    table = orders(lake)
    one, two = Recorder(lake), Recorder(lake)
    lake.jobs.register("orders", "one", spec(one.kind))
    lake.jobs.register("orders", "two", spec(two.kind))
    two.error = ConnectionError("not now")
    runtime = lake._runtime
    node = Node(runtime, beating=False)
    iterations = Iterations(runtime, lake._heartbeat, node.id, live=lambda _: {node.id})

    def run() -> list[int | None]:
        with runtime.database.read() as connection:
            jobs = [job for job, _ in with_sources(connection, read_news(connection, 0, -1).jobs)]
        work = Work(
            members=tuple(Member(job=job, since=job.watermark) for job in jobs),
            to=lake.snapshot,
            priority=0,
            tenant="default",
            together=(tuple(job.id for job in jobs),),
        )
        iterations.run(Execution(work))
        return [lake.jobs.status("orders", name).watermark for name in ("one", "two")]

    before = lake.snapshot
    assert run() == [None, None]
    assert lake.snapshot == before
    two.error = None
    assert run() == [before + 1, before + 1]
    assert lake.snapshot == before + 1  # one commit
    assert one.net() == two.net() == bag(table.to_arrow())
    node.close()


def test_the_source_is_read_once_for_all_jobs(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = sqlite_lake
    table = orders(lake)
    reads: list[Any] = []
    from tailrace.store import changes as feed

    to_arrow = feed.to_arrow
    monkeypatch.setattr(feed, "to_arrow", lambda *given: reads.append(1) or to_arrow(*given))
    recorders = [Recorder(lake) for _ in range(4)]
    for number, recorder in enumerate(recorders):
        lake.jobs.register("orders", f"log{number}", spec(recorder.kind))
    lake.run_until_fresh()
    reads.clear()
    table.upsert([{"id": 1, "v": "x"}])
    lake.run_until_fresh()
    assert len(reads) == 1
    assert {recorder.net() == bag(table.to_arrow()) for recorder in recorders} == {True}


def test_shared_reads_are_gone_when_nobody_needs_them(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with opened(sqlite_lake_args, spark, local_rows=10) as lake:
        table = orders(lake, rows=100)
        for number in range(2):
            lake.jobs.register("orders", f"copy{number}", replica(f"copy{number}"))
        with lake.serving() as serving:
            snapshot = table.upsert([{"id": i, "v": "x"} for i in range(50)])
            for number in range(2):
                lake.jobs.wait("orders", f"copy{number}", snapshot, timeout=60)
            reads = serving.service.iterations.shared_reads
            wait_until(lambda: not reads._current, what="the end of all shared reads")
        assert same(lake, "orders", "copy0")
        assert same(lake, "orders", "copy1")


def test_a_snapshot_counts_as_inserts(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    lake.create_table("plain", ORDERS)  # no key
    lake.table("plain").append([{"id": 1, "v": "a"}, {"id": 1, "v": "a"}])
    marks: list[str] = []

    @tailrace.consumer("marks")
    def take(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        for batch in changes.batches():
            marks.extend(batch.column("_change").to_pylist())

    lake.jobs.register("plain", "marks", spec("marks"))
    lake.run_until_fresh()
    lake.table("plain").delete("true")
    lake.run_until_fresh()
    assert marks == [INSERT, INSERT, DELETE, DELETE]


def test_a_hanging_commit_of_another_process_is_not_waited_for_for_ever(
    sqlite_lake: tailrace.Lake,
) -> None:
    """`run_until_fresh` with a timeout says what is still behind."""
    orders(sqlite_lake)
    slow = Recorder(sqlite_lake)
    sqlite_lake.jobs.register("orders", "slow", spec(slow.kind))
    slow.go.clear()
    threading.Timer(1.0, slow.go.set).start()
    with pytest.raises(tailrace.UnavailableError, match=r"still behind: main\.orders/slow"):
        sqlite_lake.run_until_fresh(timeout=0.3)
    assert json.dumps(sqlite_lake.jobs.status("orders", "slow").to_dict(), default=str)


def test_a_consumer_may_not_end_its_transaction(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    sqlite_lake.create_table("out", ORDERS)

    @tailrace.consumer("ending")
    def ending(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        with txn:
            txn.table("out").append([{"id": 1, "v": "x"}])

    @tailrace.consumer("committing")
    def committing(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        txn.table("out").append([{"id": 1, "v": "x"}])
        txn.commit()

    for kind in ("ending", "committing"):
        sqlite_lake.jobs.register("orders", kind, spec(kind))
        with pytest.raises(tailrace.JobFailedError, match="leave its end to the iteration"):
            sqlite_lake.run_until_fresh()
        sqlite_lake.jobs.unregister("orders", kind)
    assert sqlite_lake.table("out").to_arrow().num_rows == 0


@pytest.mark.parametrize(
    "error", [SystemExit(1), RuntimeError("half a \ud800 pair"), RuntimeError("a \0 byte")]
)
def test_whatever_a_consumer_raises_is_a_failure_of_its_job(
    lake: tailrace.Lake, error: BaseException
) -> None:
    orders(lake)
    runs = []

    @tailrace.consumer("odd")
    def odd(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        runs.append(1)
        raise error

    lake.jobs.register("orders", "odd", spec("odd"))
    with pytest.raises(tailrace.JobFailedError, match=type(error).__name__):
        lake.run_until_fresh()
    assert len(runs) == lake.jobs.status("orders", "odd").tries == 3


def test_a_timeout_is_the_jobs_own(sqlite_lake_args: LakeArgs, spark: SparkSession) -> None:
    with opened(sqlite_lake_args, spark, retry_first=timedelta(milliseconds=10)) as lake:
        orders(lake)
        slow, quick = Recorder(lake), Recorder(lake)
        lake.jobs.register("orders", "slow", spec(slow.kind, priority=1))
        lake.jobs.register("orders", "quick", spec(quick.kind, timeout="300ms"))
        slow.go.clear()
        threading.Timer(1.0, slow.go.set).start()
        with lake.serving():
            lake.jobs.wait("orders", "slow", timeout=30)
            lake.jobs.wait("orders", "quick", timeout=30)
        assert {done.error for done in lake.jobs.history()} == {None}


def test_a_failed_iteration_is_recorded_as_what_it_was(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    bad = Recorder(sqlite_lake)
    bad.error = tailrace.InvalidError("no")
    sqlite_lake.jobs.register("orders", "bad", spec(bad.kind))
    with pytest.raises(tailrace.JobFailedError):
        sqlite_lake.run_until_fresh()
    (failed,) = sqlite_lake.jobs.history("orders", "bad")
    assert (failed.kind, failed.sources, failed.error) == (
        "snapshot",
        ("main.orders",),
        "InvalidError: no",
    )
    assert failed.seconds > 0


def test_fresh_is_reached_beside_a_busy_writer(sqlite_lake: tailrace.Lake) -> None:
    table, recorder = orders(sqlite_lake), Recorder(sqlite_lake)
    sqlite_lake.jobs.register("orders", "log", spec(recorder.kind))
    ended = threading.Event()

    def write() -> None:
        number = 1000
        while not ended.is_set():
            table.append([{"id": (number := number + 1), "v": "busy"}])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        for _ in range(3):
            before = sqlite_lake.snapshot
            sqlite_lake.run_until_fresh(timeout=30)
            watermark = sqlite_lake.jobs.status("orders", "log").watermark
            assert watermark is not None
            assert watermark >= before
    finally:
        ended.set()
        writer.join()
    sqlite_lake.run_until_fresh()
    assert recorder.net() == bag(table.to_arrow())


def test_what_a_failed_try_did_to_its_memory_leaves_no_trace(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    fails = [True, True, False]
    seen: list[int] = []

    @tailrace.consumer("nested")
    def nested(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        counts = job.memory.setdefault("counts", {"runs": 0})
        seen.append(counts["runs"])
        counts["runs"] += 1
        if fails.pop(0):
            raise ConnectionError("away")

    sqlite_lake.jobs.register("orders", "nested", spec("nested"))
    sqlite_lake.run_until_fresh()
    assert seen == [0, 0, 0]


class MuteError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        ({1, 2}, None, "job.memory has to be JSON"),
        (float("nan"), None, "job.memory has to be JSON"),
        (1, MuteError(), "MuteError: it does not say"),
    ],
)
def test_a_failure_is_entered_whatever_it_is_and_siblings_go_on(
    sqlite_lake: tailrace.Lake, memory: Any, error: Exception | None, message: str
) -> None:
    orders(sqlite_lake)

    @tailrace.consumer("junk")
    def junk(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        job.memory["inner"] = {"value": memory}
        if error is not None:
            raise error

    sqlite_lake.jobs.register("orders", "junk", spec("junk", priority=1))
    sqlite_lake.jobs.register("orders", "copy", replica("orders_copy"))
    with pytest.raises(tailrace.JobFailedError, match=message):
        sqlite_lake.run_until_fresh()
    assert same(sqlite_lake, "orders", "orders_copy")
    assert sqlite_lake.jobs.status("orders", "junk").tries > 0


@pytest.mark.parametrize("local_rows", [200_000, 2])
def test_batches_bring_deletes_first(
    sqlite_lake_args: LakeArgs, spark: SparkSession, local_rows: int
) -> None:
    with opened(sqlite_lake_args, spark, local_rows=local_rows) as lake:
        table = orders(lake)
        lake.create_table("mirror", ORDERS, primary_key="id")

        @tailrace.consumer("mirror")
        def mirror(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
            for batch in changes.batches():
                assert batch.num_rows
                for row in batch.to_pylist():
                    if row.pop("_change") == DELETE:
                        txn.table("mirror").delete([row])
                    else:
                        txn.table("mirror").upsert([row])

        lake.jobs.register("orders", "mirror", spec("mirror"))
        lake.run_until_fresh()
        table.upsert([{"id": i, "v": "changed"} for i in range(3)])
        table.delete([{"id": 4}])
        lake.run_until_fresh()
        assert same(lake, "orders", "mirror")


def test_functions_that_would_do_nothing_are_no_consumers() -> None:
    def generator(changes: Any, txn: Any, job: Any) -> Any:
        yield changes

    async def coroutine(changes: Any, txn: Any, job: Any) -> None:
        """Never awaited."""

    def short(changes: Any) -> None:
        """Takes too little."""

    for function, message in (
        (generator, "no yield"),
        (coroutine, "no async"),
        (short, r"\(changes, txn, job\)"),
    ):
        with pytest.raises(tailrace.InvalidError, match=message):
            tailrace.consumer("wrong")(function)


def test_calls_that_would_wait_for_themselves_are_refused(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    orders(lake)
    calls = [
        lambda _: lake.run_until_fresh(),
        lambda _: lake.jobs.wait("orders", "self"),
        lambda _: lake.jobs.unregister("orders", "self"),
        lambda _: lake.close(),
        lambda txn: lake.jobs.unregister("orders", "self", txn=txn),
    ]

    @tailrace.consumer("self")
    def itself(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        for call in calls:
            with pytest.raises(tailrace.InvalidError, match=r"wait for itself|cannot unregister"):
                call(txn)

    lake.jobs.register("orders", "self", spec("self"))
    lake.run_until_fresh(timeout=20)
    assert lake.jobs.status("orders", "self").error is None


def test_a_consumer_may_not_drop_its_own_source(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)

    @tailrace.consumer("sawing")
    def sawing(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        txn.drop_table("orders")

    sqlite_lake.jobs.register("orders", "sawing", spec("sawing"))
    with pytest.raises(tailrace.JobFailedError, match="may not drop a source"):
        sqlite_lake.run_until_fresh()
    assert "main.orders" in sqlite_lake.tables()


@pytest.mark.parametrize("local_rows", [500_000, 0], ids=["in memory", "on Spark"])
def test_changes_carry_the_snapshot_of_each_row_where_asked_for(
    sqlite_lake_args: LakeArgs, spark: SparkSession, local_rows: int
) -> None:
    got: list[set[tuple[Any, ...]]] = []

    @tailrace.consumer("with_snapshots", columns=["id"], snapshots=True)
    def with_snapshots(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
        rows = [row for batch in changes.batches() for row in batch.to_pylist()]
        got.append({(row["_change"], row["_snapshot"], row["id"]) for row in rows})
        for change, frame in (("insert", changes.inserts), ("delete", changes.deletes)):
            assert frame.columns == ["_snapshot", "id"]
            of_frame = {(change, *row) for row in frame.collect()}
            assert of_frame == {row for row in got[-1] if row[0] == change}

    settings = tailrace.Settings(local_rows=local_rows)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = orders(lake, rows=2)
        first = lake.snapshot
        lake.jobs.register("orders", "rows", spec("with_snapshots"))
        lake.run_until_fresh()
        second = table.append([{"id": 7, "v": "x"}])
        third = table.delete([{"id": 0}])
        lake.run_until_fresh()
    whole, tail = got
    assert {(change, at >= first, number) for change, at, number in whole} == {
        ("insert", True, 0),
        ("insert", True, 1),
    }
    assert tail == {("insert", second, 7), ("delete", third, 0)}
