"""The scheduler: order, limits, fairness, time-outs and the end."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.propagation.job import Claim, LastRun, Member, RunKind, Work
from tailrace.propagation.plan import work_of
from tailrace.propagation.scheduler import Execution, Scheduler, Turn
from tailrace.propagation.spec import complete
from tests.propagation.cached_jobs import job
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.propagation.scheduler import Execution


class Desk:
    """A scheduler whose work waits until it is let go."""

    def __init__(self, **options: Any) -> None:
        self.order: list[str] = []
        self.done: list[str] = []
        self.timed_out: list[str] = []
        self.stops = 0
        self.gates: dict[str, threading.Event] = {}
        self.limits: dict[str, float] = {}
        limits = {"workers": 1, "tenant_workers": 10, **options}
        self.scheduler = Scheduler(
            run=self._run,
            done=lambda execution: self.done.append(execution.work.tenant),
            stop=self._stop,
            time_out=lambda execution: self.timed_out.append(execution.work.tenant),
            **limits,
        )

    def _run(self, execution: Execution) -> None:
        name = f"{execution.work.tenant}{execution.work.to}"
        limit = self.limits.get(name, 100.0)
        execution.turns[(1,)] = Turn(
            tag=name,
            job=1,
            started_at=datetime.now(UTC),
            started=time.monotonic(),
            deadline=time.monotonic() + limit,
        )
        self.order.append(name)
        gate = self.gates.setdefault(name, threading.Event())
        while not gate.wait(0.01):
            if execution.stopped.is_set() and self.stops:
                return

    def _stop(self, _execution: Execution) -> None:
        self.stops += 1

    def submit(
        self, tenant: str, number: int, priority: int = 0, *, is_backlog: bool = False
    ) -> Execution | None:
        work = Work(members=(), to=number, priority=priority, tenant=tenant, is_backlog=is_backlog)
        return next(iter(self.scheduler.submit(work)), None)

    def let_go(self, name: str) -> None:
        self.gates.setdefault(name, threading.Event()).set()

    def started(self, count: int) -> None:
        wait_until(lambda: len(self.order) >= count, what=f"{count} to start")


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.stops = 1
    made.scheduler.close()


def test_the_highest_priority_goes_first_then_the_oldest(desk: Desk) -> None:
    desk.submit("a", 0)
    desk.started(1)
    for number, priority in [(1, 0), (2, 5), (3, 0), (4, 5)]:
        desk.submit("a", number, priority)
    assert desk.scheduler.waiting == 4
    for number in range(5):
        desk.let_go(f"a{number}")
    desk.started(5)
    assert desk.order == ["a0", "a2", "a4", "a1", "a3"]
    wait_until(lambda: desk.scheduler.counts["completed"] == 5, what="the end")
    assert desk.scheduler.counts["submitted"] == 5


def test_a_thousand_of_one_tenant_do_not_starve_another(desk: Desk) -> None:
    desk.submit("a", 0)
    desk.started(1)
    for number in range(1, 1000):
        desk.submit("a", number, priority=9)
    desk.submit("b", 0)
    desk.scheduler.resize(2)
    desk.started(2)
    assert desk.order == ["a0", "b0"]


def test_a_tenant_has_a_limit() -> None:
    desk = Desk(workers=4, tenant_workers=2)
    for number in range(4):
        desk.submit("a", number)
    desk.submit("b", 0)
    desk.started(3)
    assert sorted(desk.order) == ["a0", "a1", "b0"]
    assert desk.scheduler.waiting == 2
    desk.let_go("a0")
    desk.started(4)
    assert desk.order[-1] == "a2"
    desk.stops = 1
    desk.scheduler.close()


def test_the_number_of_workers_can_be_changed(desk: Desk) -> None:
    for number in range(3):
        desk.submit("a", number)
    desk.started(1)
    assert desk.scheduler.running == 1
    desk.scheduler.resize(3)
    desk.started(3)
    assert desk.scheduler.running == 3
    desk.scheduler.resize(1)
    desk.submit("a", 3)
    desk.let_go("a0")
    desk.let_go("a1")
    wait_until(lambda: desk.scheduler.running == 1, what="two ends")
    assert desk.scheduler.waiting == 1


def test_what_takes_too_long_frees_its_worker(desk: Desk) -> None:
    desk.limits["a0"] = 0.05
    desk.submit("a", 0)
    desk.submit("b", 0)
    desk.started(1)
    wait_until(lambda: desk.scheduler.expire() is not None and desk.timed_out, what="a time-out")
    desk.started(2)
    assert desk.timed_out == desk.done == ["a"]
    assert desk.scheduler.counts["timed out"] == 1
    desk.let_go("a0")  # its thread ends late, and is not counted once more
    desk.let_go("b0")
    wait_until(lambda: desk.scheduler.counts["completed"] == 1, what="the other's end")
    assert desk.done == ["a", "b"]


def test_closing_stops_what_runs_and_begins_nothing(desk: Desk) -> None:
    desk.submit("a", 0)
    desk.submit("a", 1)
    desk.started(1)
    desk.scheduler.close()
    desk.scheduler.close()
    assert desk.order == ["a0"]
    assert desk.stops >= 1
    assert desk.submit("a", 2) is None
    assert desk.scheduler.counts["rejected"] == 1


def test_of_works_that_come_together_the_highest_priority_starts_first(desk: Desk) -> None:
    works = [Work(members=(), to=p, priority=p, tenant="a") for p in (0, 9, 5)]
    desk.scheduler.submit(*works)
    for priority in (0, 9, 5):
        desk.let_go(f"a{priority}")
    desk.started(3)
    assert desk.order == ["a9", "a5", "a0"]


def test_five_thousand_first_runs_leave_a_worker_to_what_is_nearly_fresh() -> None:
    desk = Desk(workers=4)
    works = [Work(members=(), to=n, priority=0, tenant="a", is_backlog=True) for n in range(5000)]
    desk.scheduler.submit(*works)
    desk.started(3)
    assert (desk.scheduler.running, desk.scheduler.waiting) == (3, 4997)
    desk.submit("a", 5000)
    desk.submit("a", 5001)
    desk.started(4)  # though no first run has ended
    assert desk.order[3] == "a5000"
    desk.let_go("a5000")
    desk.started(5)
    assert desk.order[4] == "a5001"
    desk.let_go("a0")  # its worker is a backlog's again
    desk.started(6)
    assert desk.order[5] == "a3"
    desk.stops = 1
    desk.scheduler.close()


def test_with_one_worker_backlogs_come_last(desk: Desk) -> None:
    desk.submit("a", 0, is_backlog=True)
    desk.started(1)
    desk.submit("a", 1, is_backlog=True)
    desk.submit("a", 2)
    desk.submit("a", 3, priority=1, is_backlog=True)  # as somebody asked for
    for number in range(4):
        desk.let_go(f"a{number}")
    desk.started(4)
    assert desk.order == ["a0", "a3", "a2", "a1"]


def test_a_tenants_backlogs_leave_a_worker_to_its_own_fresh_jobs() -> None:
    desk = Desk(workers=8, tenant_workers=2)
    desk.submit("a", 0, is_backlog=True)
    desk.submit("a", 1, is_backlog=True)
    desk.submit("b", 0, is_backlog=True)
    desk.started(2)
    desk.submit("a", 2)
    desk.started(3)
    assert sorted(desk.order) == ["a0", "a2", "b0"]
    desk.stops = 1
    desk.scheduler.close()


def test_what_is_given_up_frees_its_workers_and_is_settled() -> None:
    desk = Desk(workers=1)
    desk.submit("a", 0)
    desk.submit("b", 0)
    desk.started(1)
    settled: list[str] = []
    desk.scheduler.give_up(lambda execution: settled.append(execution.work.tenant))
    assert settled == ["a"]
    assert desk.done == ["a", "b"]  # also what waited, to be planned again
    assert (desk.scheduler.running, desk.scheduler.waiting) == (0, 0)
    desk.submit("c", 0)
    desk.started(2)
    desk.let_go("a0")  # its thread ends late, and is not counted once more
    desk.let_go("c0")
    wait_until(lambda: desk.scheduler.counts["completed"] == 1, what="the other's end")
    assert desk.done == ["a", "b", "c"]
    desk.scheduler.close()


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
