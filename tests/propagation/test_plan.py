"""Which iterations groups of jobs need, and which go together: functions of the cache."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tailrace.propagation.job import Job, Member, State, Work
from tailrace.propagation.job_cache import group_key
from tailrace.propagation.plan import Plan, Rules, link, plan_group, work_of
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


def wants(one: Job, to: int, **more: Any) -> Work:
    return work_of([Member(job=one, since=one.watermark, **more)], to)


def bundled(works: list[Work]) -> list[tuple[int, list[tuple[int, ...]]]]:
    return sorted((work.to, sorted(work.bundles())) for work in works)


def test_an_upstream_job_that_lags_comes_along_from_its_own_watermark() -> None:
    low, idle, high = job(1, 2), job(2, 3), job(3, 4, (1, 2))
    (work,) = link(cache(low, idle, high, changed={1: 8}), [wants(high, NEWEST)])
    assert work.bundles() == [(1, 3)]  # the lowest first, and without what has nothing to do
    assert [(m.job.id, m.since) for m in work.members] == [(1, 2), (3, 4)]


def test_two_jobs_with_a_common_upstream_go_together() -> None:
    low, one, two, beside = job(1, 2), job(2, 2, (1,)), job(3, 2, (1,)), job(4, 2)
    known = cache(low, one, two, beside, changed={1: 8, 4: 8})
    works = [wants(one, NEWEST), wants(two, NEWEST), wants(beside, NEWEST)]
    assert bundled(link(known, works)) == [(NEWEST, [(1, 2, 3)]), (NEWEST, [(4,)])]


def test_siblings_of_a_group_stay_in_its_work_and_commit_for_themselves() -> None:
    low, high, beside = job(1, 2), job(2, 2, (1,)), job(3, 2)
    known = cache(low, high, beside, changed={1: 8, 3: 8})
    group = work_of([Member(job=low, since=2), Member(job=beside, since=2)], NEWEST)
    assert bundled(link(known, [group, wants(high, NEWEST)])) == [(NEWEST, [(1, 2), (3,)])]


def test_the_nearest_end_is_taken_so_that_a_cut_backlog_stays_cut() -> None:
    low, high = job(1, 2), job(2, 2, (1,))
    known = cache(low, high, changed={1: 8})
    assert bundled(link(known, [wants(low, 5), wants(high, 7)])) == [(5, [(1, 2)])]


def test_nobody_is_taken_back_to_where_another_lags() -> None:
    low, high = job(1, 6), job(2, 2, (1,))
    known = cache(low, high, changed={1: 8})
    works = link(known, [wants(low, NEWEST), wants(high, 6, catches_up=True)])
    assert bundled(works) == [(NEWEST, [(1, 2)])]
    assert not works[0].by_job[2].catches_up  # it goes further than its group is


def test_what_was_begun_together_ends_together() -> None:
    low, high = job(1, 2, claim_to=5), job(2, 2, (1,), claim_to=5)
    known = cache(low, high, changed={1: 8})
    assert bundled(link(known, [wants(low, 5), wants(high, 5)])) == [(5, [(1, 2)])]


def test_what_was_begun_downstream_goes_as_far_as_its_upstream_is() -> None:
    low, high = job(1, 7), job(2, 2, (1,), claim_to=5)
    known = cache(low, high, changed={1: 7})
    assert bundled(link(known, [wants(high, 5)])) == [(7, [(2,)])]


def test_what_was_begun_upstream_and_ends_elsewhere_goes_first() -> None:
    low, other, high = job(1, 2, claim_to=5), job(2, 7), job(3, 2, (1, 2))
    known = cache(low, other, high, changed={1: 8, 2: 7})
    for planned in ([wants(low, 5), wants(high, NEWEST)], [wants(high, NEWEST)]):
        assert bundled(link(known, planned)) == [(5, [(1,)])]
    beside = job(4, 2, (2,))
    known = cache(low, other, high, beside, changed={1: 8, 2: 7})
    planned = [wants(low, 5), wants(high, NEWEST), wants(beside, NEWEST)]
    assert bundled(link(known, planned)) == [(5, [(1,)]), (NEWEST, [(4,)])]


def test_a_change_upstream_has_the_groups_downstream_planned_again() -> None:
    low, high = job(1, 2), job(2, 2, (1,))
    known = cache(low, high, changed={})
    groups = set(known.groups)
    assert known.apply([(job(1, 2, lsn=9), False)]) == groups
    assert known.apply([(job(2, 2, (1,), lsn=10), False)]) != groups
    known.apply([(job(2, 2, (1,), lsn=11), True)])
    assert known.downstream == {}
