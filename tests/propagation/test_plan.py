"""Which iterations a group needs: a function of the cache."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tailrace.propagation.job import State
from tailrace.propagation.job_cache import group_key
from tailrace.propagation.plan import Plan, Rules, plan_group
from tailrace.propagation.trigger import Trigger, make_trigger
from tests.propagation.cached_jobs import NEWEST, cache, job

if TYPE_CHECKING:
    from tailrace.propagation.job import Job
    from tailrace.propagation.job_cache import JobCache

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def member(number: int, watermark: int | None, **more: Any) -> Job:
    """A job of the group that follows table 1."""
    return job(number, watermark, sources=(1,), **more)


def planned(known: JobCache, **rules: Any) -> Plan:
    """The plan of the first job's group."""
    first = next(iter(known.entries.values())).job
    given: dict[str, Any] = {
        "now": NOW,
        "is_ready": lambda _: True,
        "live": {"me"},
        "time_of": lambda _: NOW,
    }
    return plan_group(known, known.members(group_key(first)), Rules(**given | rules))


def shown(plan: Plan) -> list[tuple[list[int], int | None, int, bool]]:
    """The jobs of each work, from where to where they go, and whether they only catch up."""
    return [(sorted(w.jobs), w.members[0].since, w.to, w.members[0].catches_up) for w in plan.works]


def test_nothing_runs_while_nothing_has_changed() -> None:
    assert shown(planned(cache(member(1, 5), member(2, 5), changed={1: 4}))) == []


def test_the_front_advances_together() -> None:
    known = cache(member(1, 5), member(2, 5), changed={1: 7})
    assert shown(planned(known)) == [([1, 2], 5, NEWEST, False)]


def test_a_new_job_goes_to_the_front_from_nothing() -> None:
    known = cache(member(1, 5), member(2, None), changed={1: 7})
    assert shown(planned(known)) == [([1], 5, NEWEST, False), ([2], None, 5, False)]


def test_the_first_job_goes_to_the_newest_snapshot() -> None:
    assert shown(planned(cache(member(1, None), changed={}))) == [([1], None, NEWEST, False)]


def test_stragglers_catch_up_with_the_front_one_at_a_time() -> None:
    known = cache(member(1, 7), member(2, 3), member(3, 2, priority=1), changed={1: 8})
    assert shown(planned(known)) == [([1], 7, NEWEST, False), ([3], 2, 7, True)]
    known.entries[3].work = planned(known).works[1]
    assert shown(planned(known)) == [([1], 7, NEWEST, False)]


def test_the_front_waits_for_a_member_that_is_advancing_to_it() -> None:
    running = member(2, 5, state=State.RUNNING, node="me", claim_to=7)
    known = cache(member(1, 7), running, changed={1: 8})
    assert shown(planned(known, is_ready=lambda entry: entry.job.id == 1)) == []


def test_what_was_begun_ends_where_it_was_meant_to() -> None:
    known = cache(member(1, 5, claim_to=6), changed={1: 8})
    assert shown(planned(known)) == [([1], 5, 6, False)]


def test_a_job_whose_changes_were_purged_goes_to_the_front() -> None:
    known = cache(member(1, 7), member(2, 2), changed={1: 8})
    known.oldest = 4
    assert shown(planned(known)) == [([1], 7, NEWEST, False), ([2], 2, 7, True)]


def test_a_failed_job_waits_for_its_next_try_unless_someone_waits() -> None:
    later = NOW + timedelta(seconds=5)
    known = cache(member(1, 5, tries=1, state=State.FAILING, retry_at=later), changed={1: 8})
    plan = planned(known)
    assert (shown(plan), plan.next_due) == ([], later)
    assert shown(planned(known, eager=True)) == [([1], 5, NEWEST, False)]


def test_a_job_that_is_not_due_is_looked_at_again_then() -> None:
    trigger = make_trigger("periodic", {"interval": "10s"})
    known = cache(member(1, 5, trigger=trigger), changed={1: 8})
    plan = planned(known)
    assert (shown(plan), plan.next_due, plan.faults) == ([], NOW + timedelta(seconds=10), [])
    assert shown(planned(known, now=NOW + timedelta(seconds=10))) == [([1], 5, NEWEST, False)]


def test_a_trigger_that_raises_is_reported_with_its_job() -> None:
    class Broken(Trigger):
        def due(self, watermark_time: datetime | None, now: datetime) -> datetime:
            raise KeyError(watermark_time, now)

    broken = member(1, 5, trigger=Broken({}))
    plan = planned(cache(broken, changed={1: 8}))
    assert shown(plan) == []
    ((blamed, error),) = plan.faults
    assert blamed == broken
    assert isinstance(error, KeyError)


def test_a_job_waits_for_an_upstream_job_that_cannot_run() -> None:
    low, high = job(1, 5), job(2, 5, (1,))
    known = cache(low, high, changed={1: 8})
    rules = Rules(
        now=NOW, is_ready=lambda entry: entry.job.id == 2, live=set(), time_of=lambda _: NOW
    )
    assert plan_group(known, [known.entries[2]], rules).works == []
    ready = replace(rules, is_ready=lambda _: True)
    (work,) = plan_group(known, [known.entries[2]], ready).works
    assert work.jobs == (2,)
