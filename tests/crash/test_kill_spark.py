"""The JVM beneath a serving process is killed: others do its work, and it comes back by itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support import children
from tests.support.jobs import orders, spec
from tests.support.process import wait_until
from tests.support.servers import SETTINGS, take_over_late

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

WITHIN = 30.0  # seconds, on a machine that has nothing else to do


@tailrace.consumer("by_whom")
def by_whom(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
    """Has Spark count the new rows, and writes down which process did it."""
    txn.table("seen").append([{"pid": os.getpid(), "rows": changes.inserts.count()}])


def serve(args: LakeArgs, answer: Any) -> None:
    """Serve a lake with a Spark of its own, whose process is told."""
    from pyspark import SparkContext

    with args.connect(settings=SETTINGS) as lake:
        session = lake.spark
        assert SparkContext._gateway is not None
        answer.put((os.getpid(), SparkContext._gateway.proc.pid))
        del session
        with lake.serving():
            threading.Event().wait()


def last(lake: tailrace.Lake) -> int:
    """The process that ran last."""
    rows = lake.table("seen").to_arrow().to_pylist()
    assert sum(row["rows"] for row in rows) == lake.table("orders").to_arrow().num_rows
    return int(rows[-1]["pid"])


@pytest.mark.early
def test_a_node_whose_jvm_is_killed_works_again_and_another_works_meanwhile(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    answer = children.context().Queue()
    with sqlite_lake_args.connect(spark=spark, settings=SETTINGS) as lake:
        take_over_late(lake)
        table = orders(lake)
        lake.create_table("seen", {"pid": "bigint", "rows": "bigint"})
        child = children.start(serve, sqlite_lake_args, answer)
        pid, jvm = answer.get(timeout=120)
        try:
            wait_until(lake.nodes, what="a node")
            lake.jobs.register("orders", "by_whom", spec("by_whom"))
            lake.jobs.wait("orders", "by_whom", timeout=120)
            assert last(lake) == pid
            with lake.serving():
                os.kill(jvm, signal.SIGKILL)
                wait_until(lambda: any(n.fault for n in lake.nodes()), what="it stands back")
                snapshot = table.append([{"id": 100, "v": "x"}])
                lake.jobs.wait("orders", "by_whom", snapshot, timeout=60)
                assert last(lake) == os.getpid()
                wait_until(lambda: all(n.fault is None for n in lake.nodes()), what="its recovery")
            # Alone again.
            snapshot = table.append([{"id": 101, "v": "x"}])
            lake.jobs.wait("orders", "by_whom", snapshot, timeout=120)
            assert last(lake) == pid
            assert [done.error for done in lake.jobs.history("orders", "by_whom")] == [None] * 3
        finally:
            child.kill()
            children.join(child)


@pytest.mark.stress
def test_jobs_that_the_jvm_dies_under_are_not_to_blame(
    sqlite_lake_args: LakeArgs,
) -> None:
    """Killed again and again, while it works: nothing is lost, doubled, or counted as a try."""
    answer = children.context().Queue()
    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        take_over_late(lake)
        table = orders(lake)
        lake.create_table("seen", {"pid": "bigint", "rows": "bigint"})
        lake.jobs.register("orders", "by_whom", spec("by_whom"))
        child = children.start(serve, sqlite_lake_args, answer)
        pid, jvm = answer.get(timeout=120)
        took: list[float] = []
        try:
            for number in range(3):
                wait_until(lambda: lake.jobs.status("orders", "by_whom").is_fresh, what="it")
                for row in range(20):
                    table.append([{"id": 1000 * number + row + 100, "v": "x"}])
                    if row == 10:
                        os.kill(jvm, signal.SIGKILL)
                killed = time.monotonic()
                wait_until(
                    lambda: lake.jobs.status("orders", "by_whom").is_fresh,
                    what="its recovery",
                    timeout=4 * WITHIN,
                )
                took.append(time.monotonic() - killed)
                (jvm,) = [child for child in _children_of(pid) if child != jvm][:1] or [jvm]
            assert last(lake) == pid
            assert all(done.error is None for done in lake.jobs.history("orders", "by_whom"))
            assert max(took) < WITHIN
        finally:
            child.kill()
            children.join(child)


def _children_of(pid: int) -> list[int]:
    """The Java processes of a process."""
    from pathlib import Path

    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = status.read_text().rsplit(")", 1)
        except OSError:
            continue
        state, parent, *_ = rest.split()
        if int(parent) == pid and "(java" in name and state != "Z":
            found.append(int(status.parent.name))
    return found
