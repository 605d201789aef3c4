"""Serving: metrics, log lines, and a life in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.propagation.task_types import TYPES, TaskContext
from tailrace.store import tasks
from tailrace.store.tasks import NewTask, Scope
from tests.support.jobs import Recorder, hold, orders, replica, same, spec
from tests.support.process import free_port, listens, stop, wait_until

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs


def metrics(port: int | None) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_prometheus_gets_metrics(sqlite_lake: tailrace.Lake) -> None:
    orders(sqlite_lake)
    bad = Recorder(sqlite_lake)
    bad.error = tailrace.InvalidError("never")
    sqlite_lake.jobs.register("orders", "copy", replica("orders_copy"))
    sqlite_lake.jobs.register("orders", "bad", spec(bad.kind))
    with sqlite_lake.serving(metrics_port=0) as serving:
        sqlite_lake.jobs.wait("orders", "copy", timeout=30)
        wait_until(lambda: sqlite_lake.jobs.list("error"), what="the failure")
        wait_until(lambda: 'state="error"} 1.0' in metrics(serving.metrics_port), what="the page")
        page = metrics(serving.metrics_port)
        port = serving.metrics_port
    assert 'tailrace_iterations_total{kind="replica",outcome="completed"} 1.0' in page
    assert f'tailrace_iterations_total{{kind="{bad.kind}",outcome="failed"}} 1.0' in page
    assert 'tailrace_rows_total{direction="written",kind="replica"} 5.0' in page
    assert 'tailrace_work{what="running"} 0.0' in page
    assert 'tailrace_tasks{state="running"}' in page
    assert "tailrace_oldest_task_seconds" in page
    assert port is not None
    assert not listens(port)


def test_prometheus_is_told_of_tasks(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Work:
        name, priority, keeps_history = "work", 1, True

        def run(self, context: TaskContext) -> dict[str, int]:
            if context.task.scope.table == 1:
                raise tailrace.InvalidError("never")
            return {"rows": 5, "bytes": 70}

    monkeypatch.setitem(TYPES, "work", Work())
    new = [NewTask(type="work", scope=Scope(table=number)) for number in (1, 2, 3)]
    new.append(NewTask(type="unknown here", scope=Scope(table=4)))
    runtime = sqlite_lake.runtime
    with runtime.database.lock() as connection:
        tasks.enter(connection, new, runtime.clock.now() - timedelta(hours=2))
    with sqlite_lake.serving(metrics_port=0) as serving:

        def page() -> list[str]:
            return metrics(serving.metrics_port).splitlines()

        done = 'tailrace_ended_tasks_total{outcome="done",type="work"} 2.0'
        wait_until(lambda: done in page(), what="the tasks")
        wait_until(lambda: 'tailrace_tasks{state="running"} 0.0' in page(), what="the end")
        assert {
            'tailrace_tasks{state="pending"} 1.0',
            'tailrace_tasks{state="failed"} 1.0',
            'tailrace_ended_tasks_total{outcome="failed",type="work"} 1.0',
            'tailrace_rewritten_rows_total{type="work"} 10.0',
            'tailrace_rewritten_bytes_total{type="work"} 140.0',
        } <= set(page())
        (oldest,) = (one for one in page() if one.startswith("tailrace_oldest_task_seconds "))
        assert 7200 <= float(oldest.split()[1]) < 7300


def test_a_port_that_is_taken_is_named(sqlite_lake: tailrace.Lake) -> None:
    with (
        sqlite_lake.serving(metrics_port=0) as serving,
        pytest.raises(tailrace.UnavailableError, match=f"127.0.0.1:{serving.metrics_port}"),
    ):
        sqlite_lake.serving(metrics_port=serving.metrics_port)


def test_every_iteration_is_one_line(
    sqlite_lake: tailrace.Lake, caplog: pytest.LogCaptureFixture
) -> None:
    orders(sqlite_lake)
    sqlite_lake.jobs.register("orders", "copy", replica("orders_copy"))
    with caplog.at_level(logging.INFO, logger="tailrace"):
        sqlite_lake.run_until_fresh()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "tailrace.iteration"]
    assert line.startswith("event='iteration' job='main.orders/copy'")
    assert "rows_read=5" in line


def test_serve_runs_until_it_is_told_to_stop(sqlite_lake_args: LakeArgs) -> None:
    port = free_port()
    with sqlite_lake_args.connect() as lake:
        orders(lake)
        lake.jobs.register("orders", "copy", replica("orders_copy"))
        code = f"import tailrace; tailrace.connect({sqlite_lake_args.url!r}).serve(port={port})"
        process = subprocess.Popen(
            [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        try:
            wait_until(lambda: listens(port), what="the metrics")
            wait_until(lambda: lake.jobs.status("orders", "copy").is_fresh, what="a first run")
            snapshot = lake.table("orders").append([{"id": 100, "v": "x"}])
            lake.jobs.wait("orders", "copy", snapshot, timeout=60)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            stop(process)  # type: ignore[arg-type]
        assert process.returncode == 0
        assert errors.count("event='iteration'") == 2
        assert same(lake, "orders", "orders_copy")
        assert lake.jobs.status("orders", "copy").state == "idle"


def test_serve_ends_when_its_lake_is_closed(sqlite_lake_args: LakeArgs) -> None:
    lake = sqlite_lake_args.connect()
    server = hold(lambda: lake.serve(port=0))
    wait_until(lambda: lake._services, what="a start")
    lake.close()
    server.join(30)
    assert not server.is_alive()


def test_a_lake_that_is_closed_stops_serving(sqlite_lake_args: LakeArgs) -> None:
    lake = sqlite_lake_args.connect()
    serving = lake.serving()
    lake.close()
    serving.close()
    assert not serving.service._watch._thread.is_alive()
