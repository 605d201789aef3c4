"""A node that cannot work: whose failure it is, who does the work, and how it comes back."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tailrace
from tailrace.cli.doctor import WrongError, _nodes
from tailrace.cli.main import app
from tailrace.propagation.health import Health
from tailrace.store import spark_session
from tailrace.store.spark_session import ENDED, SparkGoneError, SparkProvider
from tests.propagation.test_serving import metrics
from tests.support.jobs import Recorder, orders, spec
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

NEVER = timedelta(hours=1)
SETTINGS = tailrace.Settings(watch_interval=timedelta(milliseconds=20))


class Ill:
    """A node that can be made ill, and mended."""

    def __init__(self, lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reason: str | None = None
        monkeypatch.setattr(lake.runtime.spark, "examine", lambda: self.reason)


def faults(lake: tailrace.Lake) -> list[str | None]:
    """What the nodes say of themselves."""
    return [node.fault for node in lake.nodes()]


@pytest.fixture
def two(lake_args: LakeArgs) -> Iterator[tuple[tailrace.Lake, tailrace.Lake]]:
    """Two processes, as far as the lake can tell."""
    with (
        lake_args.connect(settings=SETTINGS) as one,
        lake_args.connect(settings=SETTINGS) as other,
    ):
        one.configure(node_timeout=NEVER)
        yield one, other


def test_a_failure_of_the_nodes_own_is_not_the_jobs_and_others_do_the_work(
    two: tuple[tailrace.Lake, tailrace.Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    table, log = orders(one), Recorder(one)
    one.jobs.register("orders", "log", spec(log.kind))
    ill = Ill(one, monkeypatch)
    with one.serving(metrics_port=0) as serving:
        one.jobs.wait("orders", "log", timeout=60)
        assert "tailrace_node_healthy 1.0" in metrics(serving.metrics_port)
        ill.reason, log.error = "the Spark of this node is gone", RuntimeError("a broken pipe")
        table.append([{"id": 100, "v": "x"}])
        wait_until(lambda: faults(other) == [ill.reason], what="the fault")
        assert serving.fault == ill.reason
        assert "tailrace_node_healthy 0.0" in metrics(serving.metrics_port)
        assert not other.is_served()
        tried = len(log.runs)
        table.append([{"id": 101, "v": "x"}])
        wait_until(lambda: serving.service.scheduler.running == 0, what="its end")
        status = other.jobs.status("orders", "log")
        assert (status.state, status.tries, status.error) == ("idle", 0, None)
        assert status.note == f"all nodes stand back: {ill.reason}"
        log.error = None
        with other.serving():
            other.jobs.wait("orders", "log", timeout=60)
            # Not by the one that stands back: it has not tried again.
            assert {done.node_id for done in other.jobs.history(limit=1)} == {
                node.id for node in other.nodes() if node.fault is None
            }
            assert len(log.runs) > tried
            ill.reason = None
            serving.service.health._nudge.set()
            wait_until(lambda: not any(faults(other)), what="its recovery")
        assert faults(other) == [None]
        snapshot = table.append([{"id": 102, "v": "x"}])
        one.jobs.wait("orders", "log", snapshot, timeout=60)
    assert len(log.net()) == 8


def test_one_that_is_alone_goes_on_with_what_it_can_do(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        lake.configure(node_timeout=NEVER)
        table, bad, good = orders(lake), Recorder(lake), Recorder(lake)
        lake.jobs.register("orders", "bad", spec(bad.kind, "greedy"))
        lake.jobs.register("orders", "good", spec(good.kind, "greedy"))
        ill = Ill(lake, monkeypatch)
        with lake.serving() as serving:
            lake.jobs.wait("orders", "bad", timeout=60)
            lake.jobs.wait("orders", "good", timeout=60)
            ill.reason, bad.error = "it needs what this node has not", RuntimeError("no Spark")
            for number in range(3):
                snapshot = table.append([{"id": 100 + number, "v": "x"}])
                wait_until(lambda: _reached(lake, "good", snapshot), what="the other")  # noqa: B023
            wait_until(lambda: faults(lake) == [ill.reason], what="the fault")
            place = ["--lake", sqlite_lake_args.url, "-o", "json"]
            shown = json.loads(CliRunner().invoke(app, ["status", *place]).stdout)
            assert [fault.endswith(ill.reason) for fault in shown["standing_back"]] == [True]
            assert not shown["served"]
            with pytest.raises(WrongError, match=ill.reason):
                _nodes(lake)
            tries = len(bad.runs)
            table.append([{"id": 200, "v": "x"}])
            wait_until(lambda: lake.jobs.status("orders", "good").is_fresh, what="the other")
            assert len(bad.runs) == tries == 2  # once by this fault
            ill.reason = bad.error = None
            serving.service.health._nudge.set()
            wait_until(lambda: lake.jobs.status("orders", "bad").is_fresh, what="its recovery")


def _reached(lake: tailrace.Lake, name: str, snapshot: int) -> bool:
    watermark = lake.jobs.status("orders", name).watermark
    return watermark is not None and watermark >= snapshot


def test_a_full_disk_is_the_nodes_own(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        lake.configure(node_timeout=NEVER)
        table, log = orders(lake), Recorder(lake)
        lake.jobs.register("orders", "log", spec(log.kind))
        with lake.serving() as serving:
            lake.jobs.wait("orders", "log", timeout=60)
            monkeypatch.setattr("tailrace.propagation.health.tempfile.TemporaryFile", full)
            log.error = RuntimeError("could not write")
            table.append([{"id": 100, "v": "x"}])
            wait_until(lambda: serving.fault, what="the fault")
            assert "No space left on device" in str(serving.fault)
            assert lake.jobs.status("orders", "log").tries == 0
            monkeypatch.undo()
            log.error = None
            serving.service.health._nudge.set()
            wait_until(lambda: lake.jobs.status("orders", "log").is_fresh, what="room")


def test_a_consumer_that_lacks_a_module_here_is_left_to_others(
    sqlite_lake_args: LakeArgs,
) -> None:
    with (
        sqlite_lake_args.connect(settings=SETTINGS) as one,
        sqlite_lake_args.connect(settings=SETTINGS) as other,
    ):
        one.configure(node_timeout=NEVER)
        orders(one)
        ran: list[str] = []

        @tailrace.consumer("picky")
        def picky(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
            ran.append(threading.current_thread().name)
            if len(ran) == 1:
                raise ModuleNotFoundError("No module named 'shop_rules'")

        with one.serving(), other.serving():
            one.jobs.register("orders", "picky", spec("picky"))
            one.jobs.wait("orders", "picky", timeout=60)
        assert len(ran) == 2
        done, failed = one.jobs.history()
        assert "shop_rules" in str(failed.error)
        assert done.node_id != failed.node_id


def test_who_waits_is_told_what_is_wrong_here(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        lake.configure(node_timeout=NEVER)
        orders(lake)
        log = Recorder(lake)
        log.error = RuntimeError("a broken pipe")
        lake.jobs.register("orders", "log", spec(log.kind))
        Ill(lake, monkeypatch).reason = "the Spark of this node is gone"
        with pytest.raises(tailrace.JobFailedError, match="the Spark of this node is gone"):
            lake.run_until_fresh()
        assert len(log.runs) == 3
        assert lake.jobs.status("orders", "log").tries == 0


# --- where Spark comes from ---------------------------------------------------------------------


class Session:
    """A classic session, as far as the provider looks at it."""

    def __init__(self) -> None:
        self.sparkContext = Context()


class Context:
    def __init__(self) -> None:
        self._jsc: Any = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.stopped))
        self._gateway = SimpleNamespace(proc=None)
        self.stopped = False


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that were started."""
    made: list[Session] = []

    def start() -> Session:
        made.append(Session())
        return made[-1]

    monkeypatch.setattr(spark_session, "_start_spark", start)
    monkeypatch.setattr(spark_session, "_is_there", lambda: False)
    monkeypatch.setattr(spark_session, "discard", lambda _session: None)
    return made


def test_a_session_of_ours_that_has_ended_is_started_anew(started: list[Session]) -> None:
    provider = SparkProvider()
    first = provider()
    assert provider() is first
    assert provider.examine() is None
    started[0].sparkContext.stopped = True  # by itself, or by its cluster: it has to be asked
    assert not provider.is_lost
    assert provider.examine() == ENDED
    assert provider.is_lost
    assert provider.session is None
    second = provider()
    assert second is not first
    assert provider.examine() is None
    started[1].sparkContext._gateway.proc = SimpleNamespace(poll=lambda: -9)  # its JVM is killed
    assert provider.is_lost
    assert provider() is not second


def test_a_session_that_was_given_is_not_replaced(started: list[Session]) -> None:
    given = Session()
    provider = SparkProvider(given)  # type: ignore[arg-type]
    assert provider() is given  # type: ignore[comparison-overlap]
    given.sparkContext._jsc = None  # stopped
    with pytest.raises(SparkGoneError, match="made by the program"):
        provider()
    assert "made by the program" in str(provider.examine())
    assert started == []


def test_lakes_of_a_process_share_what_was_started_for_one(
    started: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SparkProvider(), SparkProvider()
    one()
    monkeypatch.setattr(spark_session, "_is_there", lambda: True)
    monkeypatch.setattr(spark_session, "_start_spark", lambda: started[-1])
    assert other() is one()
    started[0].sparkContext._jsc = None
    started.append(Session())
    assert other() is started[1]  # type: ignore[comparison-overlap]


def test_spark_that_does_not_start_is_tried_again_by_the_node(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []

    def start() -> Session:
        starts.append(1)
        if len(starts) < 3:
            raise RuntimeError("JAVA_GATEWAY_EXITED\nat length")
        return Session()

    monkeypatch.setattr(spark_session, "_start_spark", start)
    monkeypatch.setattr(spark_session, "_is_there", lambda: False)
    monkeypatch.setattr("tailrace.propagation.health._LOOK", 0.01)
    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        lake.configure(node_timeout=NEVER)
        orders(lake)

        @tailrace.consumer("needs_spark")
        def needs_spark(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
            assert lake.spark is not None

        lake.jobs.register("orders", "log", spec("needs_spark"))
        with lake.serving():
            wait_until(lambda: lake.jobs.status("orders", "log").is_fresh, what="a start")
        assert len(starts) == 3
        assert [done.error for done in lake.jobs.history()] == [None]


def test_the_health_of_a_node_is_known_without_spark(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as lake, lake.serving() as serving:
        health: Health = serving.service.health
        assert health._turn()
        assert serving.fault is None
        assert lake.runtime.spark.session is None
