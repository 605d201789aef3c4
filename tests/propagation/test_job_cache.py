"""The job log in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tailrace.propagation.job import Member, State
from tailrace.propagation.job_cache import DueTimes
from tailrace.propagation.plan import work_of
from tests.propagation.cached_jobs import NEWEST, cache, job


def test_an_unchanged_source_leaves_a_job_fresh_at_the_newest_snapshot() -> None:
    known = cache(job(1, 5), changed={1: 5})
    entry = known.entries[1]
    assert not known.is_stale(entry)
    assert known.effective(entry) == NEWEST


def test_a_change_keeps_what_was_known_of_the_watermark() -> None:
    known = cache(job(1, 5), job(2, 5), changed={1: 4, 2: 4})
    groups = known.change({1: 12}, 12)
    assert groups == {key for key, members in known.groups.items() if members == [1]}
    # Up to the last look nothing had changed, though the job log has an older watermark.
    assert (known.entries[1].watermark, known.is_stale(known.entries[1])) == (NEWEST, True)
    assert known.effective(known.entries[2]) == 12


def test_a_claim_takes_the_watermark_back_to_where_it_began() -> None:
    known = cache(job(1, 5), changed={1: 4})
    known.change({1: 12}, 12)
    known.apply([(job(1, 5, claim_to=7, node="other", state=State.RUNNING), False)])
    assert known.entries[1].watermark == 5
    assert known.claimed == {1}
    assert [entry.job.id for entry in known.left_behind({"me"})] == [1]
    assert known.left_behind({"me", "other"}) == []


def test_how_much_there_is_to_read_is_known_of_what_the_last_look_found() -> None:
    known = cache(job(1, 9, sources=(1, 2)), job(3, 5), changed={})
    known.change({1: 12, 2: 12, 3: 12}, 12, {1: 5, 2: 2, 3: 1})

    def most(number: int, since: int | None, to: int = 12) -> int | None:
        one = known.entries[number].job
        return known.most_rows(work_of([Member(job=one, since=since)], to))

    assert [most(1, NEWEST), most(1, 11), most(3, NEWEST)] == [7, 7, 1]
    # It begins before the last look, from nothing, or does not go as far.
    assert [most(3, 8), most(3, None), most(1, NEWEST, to=11)] == [None, None, None]
    known.change({2: 13}, 13, {2: 4})
    assert [most(1, 12, to=13), most(1, NEWEST, to=13)] == [4, None]
    known.change({1: 14}, 14)  # nobody counted
    assert most(1, 13, to=14) is None


def test_a_dropped_job_leaves_nothing_behind() -> None:
    known = cache(job(1, 5), job(2, 5, (1,)), changed={})
    known.apply([(job(2, 5, (1,)), True)])
    assert (set(known.entries), set(known.by_source), known.downstream) == ({1}, {1}, {})
    known.forget([1])
    assert (known.entries, known.groups, known.by_source, known.last_change) == ({}, {}, {}, {})


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_what_is_due_is_given_once() -> None:
    times = DueTimes()
    times.add("a", after(5))
    times.add(("rule", (1,)), after(5))  # a key of another type, at the same moment
    times.add("b", after(9))
    assert times.next() == after(5)
    assert times.pop(after(4)) == set()
    assert times.pop(after(5)) == {"a", ("rule", (1,))}
    assert times.next() == after(9)
    assert times.pop(after(60)) == {"b"}
    assert (times.next(), times.pop(after(60))) == (None, set())


def test_the_earliest_moment_of_a_group_counts() -> None:
    times = DueTimes()
    times.add("a", after(5))
    times.add("a", after(7))
    times.add("a", after(2))
    assert times.pop(after(2)) == {"a"}
    times.add("a", after(20))
    assert times.pop(after(20)) == {"a"}
    assert times.next() is None
