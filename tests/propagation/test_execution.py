"""A work that is queued or running."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from tailrace.propagation.job import Claim, LastRun, Member, RunKind
from tailrace.propagation.plan import work_of
from tailrace.propagation.scheduler import Execution, Turn
from tailrace.propagation.spec import complete
from tests.propagation.cached_jobs import job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claim(number: int, **more: Any) -> Claim:
    one = job(number, 5, claim_to=9, node="me", **more)
    return Claim(job=one, spec=complete({"consumer": {"kind": "any"}}), last=LastRun())


def turn(number: int, deadline: float) -> Turn:
    started = time.monotonic()
    return Turn(job=number, tag=f"tag {number}", started_at=NOW, started=started, deadline=deadline)


def running(*claims: Claim) -> Execution:
    """Each job alone, with time until far later."""
    execution = Execution(work_of([Member(job=c.job, since=c.since) for c in claims], 9))
    execution.claims = {c.job.id: c for c in claims}
    execution.turns = {(c.job.id,): turn(c.job.id, time.monotonic() + 60) for c in claims}
    return execution


def test_a_newer_epoch_stops_its_job_and_no_other() -> None:
    execution = running(claim(1, epoch=3), claim(2, epoch=3))
    execution.epochs = {1: 3}
    assert execution.stragglers() == []
    execution.epochs = {1: 4}
    assert execution.must_stop((1,))
    assert execution.must_stop((2, 1))  # they commit together
    assert not execution.must_stop((2,))
    assert execution.stragglers() == ["tag 1"]


def test_all_of_it_stops_when_it_is_stopped() -> None:
    execution = running(claim(1), claim(2))
    execution.stopped.set()
    assert execution.stragglers() == ["tag 1", "tag 2"]


def test_the_turn_that_took_too_long_is_late() -> None:
    execution = running(claim(1), claim(2))
    assert execution.late() == []
    late = execution.turns[(1,)] = turn(1, time.monotonic() - 1)
    assert execution.late() == [late]
    assert execution.deadline() == late.deadline


def test_a_failure_before_the_first_turn_is_recorded_too() -> None:
    execution = running(claim(1))
    record = execution.record(execution.claims[1], RunKind.TAIL, None, NOW)
    assert (record.from_snapshot, record.to_snapshot, record.node_id) == (5, 9, "me")
    assert (record.started_at, record.ended_at, record.seconds) == (NOW, NOW, 0.0)
    assert record.sources == ("table 1",)  # its name was not looked up yet
