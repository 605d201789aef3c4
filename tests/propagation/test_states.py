"""What users are told of a job at rest: new, failing or idle, and the same at every door."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tailrace
from tailrace.cli.main import app
from tailrace.sql.listings import system_rows
from tests.propagation.test_serving import metrics
from tests.support.clock import MovableClock
from tests.support.jobs import Recorder, orders, spec
from tests.support.process import wait_until

if TYPE_CHECKING:
    from datetime import datetime

    from tests.support.lakes import LakeArgs


def doors(lake: tailrace.Lake) -> dict[str, str]:
    """The states of all jobs by name, which every door has to give."""
    found = {job.name: str(job.state) for job in lake.jobs.list()}
    assert {name: str(lake.jobs.status("orders", name).state) for name in found} == found
    tables = [system_rows(lake.runtime, table) for table in ("jobs", "freshness")]
    for rows in (lake.sql("SHOW JOBS").to_pylist(), *tables):
        assert {row["name"]: row["state"] for row in rows} == found
    return found


def state(lake: tailrace.Lake, name: str) -> str:
    return str(lake.jobs.status("orders", name).state)


def test_a_job_at_rest_is_new_failing_or_idle(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        orders(lake)
        good, bad = Recorder(lake), Recorder(lake)
        lake.jobs.register("orders", "good", spec(good.kind))
        lake.jobs.register("orders", "bad", spec(bad.kind))
        assert doors(lake) == {"good": "new", "bad": "new"}
        bad.error = RuntimeError("not today")
        with pytest.raises(tailrace.JobFailedError):
            lake.run_until_fresh()
        assert doors(lake) == {"good": "idle", "bad": "failing"}
        status = lake.jobs.status("orders", "bad")
        assert status.watermark is None  # it was never built, and that is not the news
        assert status.error == "RuntimeError: not today"
        assert status.retry_at is not None
        (row,) = [r for r in lake.sql("SHOW JOBS").to_pylist() if r["name"] == "bad"]
        assert (row["error"], row["retry_at"]) == (status.error, status.retry_at)
        assert {job.name for job in lake.jobs.list("completed")} == {"good", "bad"}
        assert [job.name for job in lake.jobs.list("failing")] == ["bad"]
        assert [job.name for job in lake.jobs.list("idle")] == ["good"]
        assert lake.jobs.list("new") == lake.jobs.list("error") == []
        with pytest.raises(tailrace.InvalidError, match="new, idle, running, failing, error"):
            lake.jobs.list("pending")
        with lake.serving(metrics_port=0) as serving:
            wait_until(lambda: 'state="failing"} 1.0' in metrics(serving.metrics_port), what="it")
            assert 'tailrace_jobs{state="idle"} 1.0' in metrics(serving.metrics_port)
        lake.jobs.pause("orders", "bad")
        assert doors(lake)["bad"] == "paused"
        lake.jobs.resume("orders", "bad")
        assert doors(lake)["bad"] == "new"


def test_the_command_line_says_how_a_job_is(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as lake:
        orders(lake)
        bad = Recorder(lake)
        bad.error = RuntimeError("not today")
        lake.jobs.register("orders", "bad", spec(bad.kind))
        with pytest.raises(tailrace.JobFailedError):
            lake.run_until_fresh()
    for command in ("jobs", "status"):
        shown = CliRunner().invoke(app, [command, "--lake", sqlite_lake_args.url, "-o", "json"])
        answer: Any = json.loads(shown.stdout)
        rows = answer if command == "jobs" else answer["freshness"]
        assert [row["state"] for row in rows] == ["failing"]


class Moody(tailrace.Trigger):
    """Runs a day after its last run, if it is in the mood to say so."""

    error: Exception | None = None

    def due(self, watermark_time: datetime | None, now: datetime) -> datetime:
        if Moody.error is not None:
            raise Moody.error
        return now if watermark_time is None else watermark_time + timedelta(days=1)


def test_a_trigger_that_raises_is_a_failure_of_its_job(lake_args: LakeArgs) -> None:
    tailrace.trigger("moody_by_day")(Moody)
    Moody.error = None
    clock = MovableClock()
    with lake_args.connect(clock=clock) as lake:
        table, log = orders(lake), Recorder(lake)
        lake.jobs.register("orders", "log", spec(log.kind, "moody_by_day"))
        with lake.serving() as serving:
            lake.jobs.wait("orders", "log", timeout=60)
            Moody.error = KeyError("at")
            table.append([{"id": 100, "v": "x"}])
            wait_until(lambda: state(lake, "log") == "failing", what="the trigger's failure")
            status = lake.jobs.status("orders", "log")
            assert status.error == "the trigger failed: KeyError: 'at'"
            assert status.retry_at is not None
            assert status.retry_at > clock.now() - timedelta(seconds=60)
            Moody.error = None
            clock.advance(timedelta(hours=1))
            serving.service._wake.set()
            wait_until(lambda: state(lake, "log") == "idle", what="the trigger's mood")
            assert not lake.jobs.status("orders", "log").is_fresh
            clock.advance(timedelta(days=1))
            serving.service._wake.set()
            wait_until(lambda: lake.jobs.status("orders", "log").is_fresh, what="its day")
        assert lake.jobs.status("orders", "log").tries == 0
