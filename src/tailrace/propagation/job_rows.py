"""How the job log stores a job: the only place that knows the columns, their words and their JSON.

The states `new`, `idle` and `failing` are all stored as `completed`; the watermark and the tries
tell them apart. The system views say the same in SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from tailrace.propagation import tables as t
from tailrace.propagation.job import AT_REST, JobError, JobRecord, LastRun, State
from tailrace.propagation.spec import JobSpec

# In an UPDATE: a running job is at rest again; one that was paused meanwhile stays so.
ENDED = sa.case((t.job.c.state == State.RUNNING, State.COMPLETED), else_=t.job.c.state)
# The same for one that has failed for good.
FAILED = sa.case((t.job.c.state == State.RUNNING, State.ERROR.value), else_=t.job.c.state)

# Whether a spec asks for history to be kept.
HAS_RETENTION = t.job.c.spec.like('%"retention":%')


def from_row(row: Any) -> JobRecord:
    """A row as a value."""
    return JobRecord(
        id=row.job_id,
        tenant=row.tenant,
        home=row.home,
        name=row.name,
        kind=row.kind,
        spec=spec_from_json(row.spec),
        state=state_of(row.state, watermark=row.watermark, tries=row.tries),
        watermark=row.watermark,
        claim_to=row.claim_to,
        catches_up=bool(row.catches_up),
        node=row.node_id,
        epoch=row.epoch,
        lsn=row.lsn,
        tries=row.tries,
        retry_at=row.retry_at,
        last=_last_from_json(row.status),
        created_at=row.created_at,
        dropped_at=row.dropped_at,
    )


def to_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job as columns of its row; a value may be an SQL expression, too."""
    return dict(_column(name, value) for name, value in values.items())


def _column(name: str, value: Any) -> tuple[str, Any]:
    if name == "state" and isinstance(value, State):
        return name, stored_state(value)
    if name == "node":
        return "node_id", value
    if name == "catches_up":
        return name, int(value)
    if name == "spec":
        return name, json.dumps(value.to_dict())
    if name == "last":
        return "status", _last_to_json(value)
    return name, value


def state_of(stored: str, *, watermark: int | None, tries: int) -> State:
    """The state of a job, by its row."""
    if stored != State.COMPLETED:
        return State(stored)
    if tries:
        return State.FAILING
    return State.NEW if watermark is None else State.IDLE


def stored_state(state: State) -> str:
    """The word for a state in the job log."""
    return State.COMPLETED if state in AT_REST else state.value


def spec_from_json(text: str) -> JobSpec:
    """A job's spec."""
    stored = json.loads(text)
    return JobSpec(
        consumer=stored["consumer"],
        job_type=stored["trigger"]["job_type"],
        schedule=stored["trigger"]["schedule"],
        priority=stored["priority"],
        timeout=stored["timeout"],
        retention=stored.get("retention"),
        sources=tuple(stored["sources"]),
    )


def _last_from_json(text: str) -> LastRun:
    stored = json.loads(text)
    error = stored.get("error")
    return LastRun(
        memory=stored.get("memory", {}), error=None if error is None else JobError(**error)
    )


def _last_to_json(last: LastRun) -> str:
    error = {} if last.error is None else {"error": asdict(last.error)}
    return json.dumps({"memory": last.memory, **error})
