"""How jobs with an upstream are planned to go together: a function of the cache."""

from __future__ import annotations

from typing import Any

from tailrace.propagation.job import Job, Member, Work
from tailrace.propagation.plan import link, work_of
from tests.propagation.cached_jobs import NEWEST, cache, job


def wants(one: Job, to: int, **more: Any) -> Work:
    return work_of([Member(job=one, since=one.watermark, **more)], to)


def shown(works: list[Work]) -> list[tuple[int, list[tuple[int, ...]]]]:
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
    assert shown(link(known, works)) == [(NEWEST, [(1, 2, 3)]), (NEWEST, [(4,)])]


def test_siblings_of_a_group_stay_in_its_work_and_commit_for_themselves() -> None:
    low, high, beside = job(1, 2), job(2, 2, (1,)), job(3, 2)
    known = cache(low, high, beside, changed={1: 8, 3: 8})
    group = work_of([Member(job=low, since=2), Member(job=beside, since=2)], NEWEST)
    assert shown(link(known, [group, wants(high, NEWEST)])) == [(NEWEST, [(1, 2), (3,)])]


def test_the_nearest_end_is_taken_so_that_a_cut_backlog_stays_cut() -> None:
    low, high = job(1, 2), job(2, 2, (1,))
    known = cache(low, high, changed={1: 8})
    assert shown(link(known, [wants(low, 5), wants(high, 7)])) == [(5, [(1, 2)])]


def test_nobody_is_taken_back_to_where_another_lags() -> None:
    low, high = job(1, 6), job(2, 2, (1,))
    known = cache(low, high, changed={1: 8})
    works = link(known, [wants(low, NEWEST), wants(high, 6, catches_up=True)])
    assert shown(works) == [(NEWEST, [(1, 2)])]
    assert not works[0].by_job[2].catches_up  # it goes further than its group is


def test_what_was_begun_together_ends_together() -> None:
    low, high = job(1, 2, claim_to=5), job(2, 2, (1,), claim_to=5)
    known = cache(low, high, changed={1: 8})
    assert shown(link(known, [wants(low, 5), wants(high, 5)])) == [(5, [(1, 2)])]


def test_what_was_begun_downstream_goes_as_far_as_its_upstream_is() -> None:
    low, high = job(1, 7), job(2, 2, (1,), claim_to=5)
    known = cache(low, high, changed={1: 7})
    assert shown(link(known, [wants(high, 5)])) == [(7, [(2,)])]


def test_what_was_begun_upstream_and_ends_elsewhere_goes_first() -> None:
    low, other, high = job(1, 2, claim_to=5), job(2, 7), job(3, 2, (1, 2))
    known = cache(low, other, high, changed={1: 8, 2: 7})
    for planned in ([wants(low, 5), wants(high, NEWEST)], [wants(high, NEWEST)]):
        assert shown(link(known, planned)) == [(5, [(1,)])]
    beside = job(4, 2, (2,))
    known = cache(low, other, high, beside, changed={1: 8, 2: 7})
    planned = [wants(low, 5), wants(high, NEWEST), wants(beside, NEWEST)]
    assert shown(link(known, planned)) == [(5, [(1,)]), (NEWEST, [(4,)])]


def test_a_change_upstream_has_the_groups_downstream_planned_again() -> None:
    low, high = job(1, 2), job(2, 2, (1,))
    known = cache(low, high, changed={})
    groups = set(known.groups)
    assert known.apply([(job(1, 2, lsn=9), False)]) == groups
    assert known.apply([(job(2, 2, (1,), lsn=10), False)]) != groups
    known.apply([(job(2, 2, (1,), lsn=11), True)])
    assert known.downstream == {}
