"""Triggers and intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tailrace.errors import InvalidError
from tailrace.propagation.trigger import (
    Trigger,
    Unknown,
    check_trigger,
    make_trigger,
    parse_interval,
    trigger,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("10s", 10), ("1.5h", 5400), (" 250 ms ", 0.25), ("3d", 259_200), (2, 2), (0.5, 0.5)],
)
def test_an_interval_is_a_number_with_a_unit_or_of_seconds(given: object, seconds: float) -> None:
    assert parse_interval(given) == timedelta(seconds=seconds)


@pytest.mark.parametrize("given", ["10", "s", "-1s", "0s", 0, -5, True, None, "1e9d", float("nan")])
def test_other_intervals_are_refused(given: object) -> None:
    with pytest.raises(InvalidError, match="cannot read the interval"):
        parse_interval(given)


def test_a_periodic_trigger_is_due_an_interval_after_its_watermark() -> None:
    periodic = make_trigger("periodic", {"interval": "10s"})
    assert periodic.due(NOW, NOW) == NOW + timedelta(seconds=10)
    assert periodic.due(None, NOW) == NOW  # the time of that snapshot is not known any more
    assert not periodic.shares
    assert make_trigger("periodic", {"interval": "10s", "share": True}).shares


def test_equal_triggers_are_one_object() -> None:
    one = make_trigger("periodic", {"interval": "10s", "share": True})
    assert make_trigger("periodic", {"share": True, "interval": "10s"}) is one


def test_a_trigger_that_cannot_be_made_here_is_unknown() -> None:
    assert isinstance(make_trigger("registered elsewhere", {}), Unknown)
    assert "interval" in make_trigger("periodic", {}).schedule["reason"]


@pytest.mark.parametrize(
    ("job_type", "schedule", "message"),
    [
        ("hourly", {}, "there is no trigger"),
        ("default", "10s", "schedule is a dict"),
        ("periodic", {}, "needs an interval"),
        ("periodic", {"interval": "10s", "share": "yes"}, "share is true or false"),
    ],
)
def test_a_bad_trigger_is_refused(job_type: str, schedule: object, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        check_trigger(job_type, schedule)


def test_a_built_in_trigger_keeps_its_name() -> None:
    with pytest.raises(InvalidError, match="built-in trigger"):
        trigger("greedy")(Trigger)
    with pytest.raises(InvalidError, match="derived from Trigger"):
        trigger("mine")(int)  # type: ignore[type-var]
