"""Triggers: the rules that say when a stale job runs.

A trigger is a class, registered by the name that specs use as `job_type`. Users add their own:

    @tailrace.trigger("nightly")
    class Nightly(tailrace.Trigger):
        def due(self, watermark_time, now):
            return midnight_after(watermark_time)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from tailrace.arguments import Name, checked, json_value, show
from tailrace.errors import InvalidError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Trigger:
    """The base of all triggers: runs at once, on its own."""

    name: ClassVar[str] = ""
    # Whether jobs with this trigger, equal schedules and equal sources keep equal watermarks
    # and run together.
    shares: bool = False

    def __init__(self, schedule: Mapping[str, Any]) -> None:
        self.schedule = dict(schedule)

    def due(self, watermark_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        """When a job runs whose watermark is of that time, and whose sources have changed since."""
        return now


_registered: dict[str, type[Trigger]] = {}
T = TypeVar("T", bound=type[Trigger])


@lru_cache(maxsize=10_000)
def _made(job_type: str, schedule: str) -> Trigger:
    kind = _registered.get(job_type)
    if kind is None:
        return Unknown({})
    try:
        return kind(json.loads(schedule))
    except InvalidError:
        raise
    except Exception as error:
        raise InvalidError(
            f"the trigger {job_type!r} does not take {schedule}: {error!r}"
        ) from error


@checked
def trigger(name: Name) -> Callable[[T], T]:
    """Register a class of triggers under the name that specs call it by."""

    def register(kind: T) -> T:
        given: object = kind
        if not (isinstance(given, type) and issubclass(given, Trigger)):
            raise InvalidError(f"the trigger {name!r} must be a class derived from Trigger")
        if name in _registered and _registered[name].__module__ == __name__:
            raise InvalidError(f"{name!r} is a built-in trigger: choose another name")
        kind.name = name
        _registered[name] = kind
        _made.cache_clear()
        return kind

    return register


@trigger("default")
class Default(Trigger):
    """Jobs on the same sources keep equal watermarks and run together."""

    shares = True


@trigger("greedy")
class Greedy(Trigger):
    """Its own iteration, whenever there is something new."""


@trigger("periodic")
class Periodic(Trigger):
    """When its watermark is older than an interval: `{"interval": "10s", "share": true}`."""

    def __init__(self, schedule: Mapping[str, Any]) -> None:
        super().__init__(schedule)
        if "interval" not in schedule:
            raise InvalidError('a periodic trigger needs an interval: {"interval": "10s"}')
        self.interval = parse_interval(schedule["interval"])
        share = schedule.get("share", False)
        if not isinstance(share, bool):
            raise InvalidError(f"a periodic trigger's share is true or false, not {share!r}")
        self.shares = share

    def due(self, watermark_time: datetime | None, now: datetime) -> datetime:
        return now if watermark_time is None else watermark_time + self.interval


class Unknown(Trigger):
    """A trigger that this process can't make. Its jobs are left alone here."""


def make_trigger(job_type: str, schedule: Mapping[str, Any]) -> Trigger:
    """The trigger of a spec; equal ones are one object, because there are many jobs."""
    try:
        return _made(job_type, json.dumps(schedule, sort_keys=True))
    except InvalidError as error:
        # It was accepted when it was registered: this process has another version of the class.
        return Unknown({"reason": str(error)})


def check_trigger(job_type: object, schedule: object) -> None:
    """Refuse a trigger that is not known here, or a schedule that it does not accept."""
    if not isinstance(job_type, str) or job_type not in _registered:
        known = ", ".join(sorted(_registered))
        raise InvalidError(f"there is no trigger {show(job_type)}: use one of {known}")
    if not isinstance(schedule, Mapping):
        raise InvalidError(f"a trigger's schedule is a dict, not {schedule!r}")
    plain = json_value(schedule, "a trigger's schedule")
    _made(str(job_type), json.dumps(plain, sort_keys=True))


def parse_interval(given: object) -> timedelta:
    """`"10s"`, `"1.5h"`, or a number of seconds."""
    seconds = -1.0
    if isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    elif isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", given)
        if match:
            seconds = float(match[1]) * _UNITS[match[2]]
    # Also refuses what is not a number, and what no clock reaches.
    if not 0 < seconds < 86400 * 36500:
        raise InvalidError(
            f"cannot read the interval {show(given)}: write a number and ms, s, m, h or d, "
            "as in '10s'"
        )
    return timedelta(seconds=seconds)
