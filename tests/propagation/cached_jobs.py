"""Jobs in a job cache, without a job log."""

from __future__ import annotations

from typing import Any

from tailrace.propagation.job import Job, State
from tailrace.propagation.job_cache import JobCache
from tailrace.propagation.trigger import make_trigger

NEWEST = 9


def job(number: int, watermark: int | None, upstream: tuple[int, ...] = (), **more: Any) -> Job:
    """A job on the table of its own number, and on those of its upstream."""
    values: dict[str, Any] = {
        "id": number,
        "tenant": "default",
        "home": "main.t",
        "name": f"j{number}",
        "kind": "any",
        "trigger": make_trigger("default", {}),
        "rule": "default",
        "priority": 0,
        "timeout": None,
        "sources": (*upstream, number),
        "upstream": upstream,
        "state": State.IDLE,
        "watermark": watermark,
        "claim_to": None,
        "catches_up": False,
        "node": None,
        "epoch": 0,
        "lsn": number,
        "tries": 0,
        "retry_at": None,
    }
    return Job(**{**values, **more})


def cache(*jobs: Job, changed: dict[int, int]) -> JobCache:
    """All jobs, and when their tables changed last: at 0 if it is not said."""
    known = JobCache(snapshot=NEWEST)
    known.apply((one, False) for one in jobs)
    known.last_change = {table: changed.get(table, 0) for table in known.by_source}
    return known
