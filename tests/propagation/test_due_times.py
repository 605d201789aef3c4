"""When to look at which group again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tailrace.propagation.job_cache import DueTimes

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
