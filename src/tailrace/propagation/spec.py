"""A job's spec: what users write as a dict, checked and completed.

{"trigger": {"job_type": "periodic", "schedule": {"interval": "10s"}},
"priority": 5, "timeout": "10m", "retention": "3d", "sources": ["sales.orders", "sales.customers"],
"consumer": {"kind": "replica", "table": "sales.copy"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.arguments import json_value, show
from tailrace.errors import InvalidError
from tailrace.propagation.trigger import check_trigger, parse_interval

_FIELDS = ("trigger", "priority", "timeout", "retention", "sources", "consumer")
_DEFAULTS: dict[str, Any] = {
    "trigger": {"job_type": "default", "schedule": {}},
    "priority": 0,
    "timeout": None,
    "sources": [],  # only the table that the job is registered on
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """What a job has to do: checked, and complete."""

    consumer: dict[str, Any]  # its kind, and the options of that kind
    job_type: str  # the trigger's name
    schedule: dict[str, Any]
    priority: int
    timeout: str | float | None  # an interval, as it was written
    retention: str | float | None  # history that is kept for it; the lake's may be longer
    sources: tuple[str, ...]  # as they were named; none: the table that it is registered on

    @property
    def kind(self) -> str:
        """The kind of its consumer."""
        return str(self.consumer["kind"])

    def to_dict(self) -> dict[str, Any]:
        """As users write it."""
        spec = {
            "trigger": {"job_type": self.job_type, "schedule": self.schedule},
            "priority": self.priority,
            "timeout": self.timeout,
            "sources": list(self.sources),
            "consumer": self.consumer,
        }
        return spec if self.retention is None else {**spec, "retention": self.retention}


def complete(given: object) -> JobSpec:
    """A new job's spec, with defaults for the missing fields."""
    return _checked({**_DEFAULTS, **_fields(given)})


def updated(old: JobSpec, given: object) -> JobSpec:
    """A spec with some fields overwritten; empty ones keep their value."""
    fields = _fields(given)
    if tuple(fields.get("sources", old.sources)) != old.sources:
        raise InvalidError("the sources of a job cannot be changed: register another job")
    consumer = {**old.consumer, **_filled(fields.pop("consumer", {}))}
    if consumer["kind"] != old.kind:
        raise InvalidError("the consumer of a job cannot be changed: register another job")
    return _checked({**old.to_dict(), **fields, "consumer": consumer})


def _fields(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidError('a job\'s spec is a dict such as {"consumer": {"kind": "replica", …}}')
    fields = json_value(given, "a job's spec")
    unknown = [field for field in fields if field not in _FIELDS]
    if unknown:
        raise InvalidError(f"a spec has no field {unknown[0]!r}; it has {', '.join(_FIELDS)}")
    return _filled(fields)


def _filled(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidError(f"expected a dict in the spec, not {show(given)}")
    return {name: value for name, value in given.items() if value not in (None, "", {}, [])}


def _checked(spec: dict[str, Any]) -> JobSpec:
    trigger = spec["trigger"]
    if not isinstance(trigger, Mapping) or set(trigger) - {"job_type", "schedule"}:
        raise InvalidError('a trigger is {"job_type": "default", "schedule": {}}')
    job_type, schedule = trigger.get("job_type", "default"), trigger.get("schedule", {})
    check_trigger(job_type, schedule)
    priority = spec["priority"]
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**31:
        raise InvalidError(f"a priority is a whole number, higher first, not {show(priority)}")
    for name in ("timeout", "retention"):
        if spec.get(name) is not None:
            parse_interval(spec[name])
    sources = spec["sources"]
    if not isinstance(sources, list | tuple) or not all(isinstance(s, str) for s in sources):
        raise InvalidError("a spec's sources are a list of table names")
    consumer = spec.get("consumer")
    if not isinstance(consumer, Mapping) or not isinstance(consumer.get("kind"), str):
        raise InvalidError('a spec needs a consumer: {"consumer": {"kind": "replica", …}}')
    return JobSpec(
        consumer=dict(consumer),
        job_type=job_type,
        schedule=dict(schedule),
        priority=priority,
        timeout=spec["timeout"],
        retention=spec.get("retention"),
        sources=tuple(sources),
    )
