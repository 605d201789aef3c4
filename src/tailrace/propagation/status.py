"""What users are told of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.propagation.consumer import find_consumer, known_consumers, why_missing
from tailrace.propagation.freshness import Freshness
from tailrace.propagation.job import STOPPED, JobRecord, State
from tailrace.propagation.outputs import derived_by
from tailrace.propagation.trigger import Unknown, make_trigger
from tailrace.store import lookup


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as it is now."""

    job_id: int
    table: str  # what it is named under
    name: str
    kind: str
    state: State
    # The snapshot that its output reflects: the last one before its sources changed again. None
    # before the first iteration.
    watermark: int | None
    is_fresh: bool  # its output reflects all of its sources
    sources: tuple[str, ...]
    outputs: tuple[str, ...]  # tables that it derives
    upstream: tuple[str, ...]  # jobs that it reads from, directly or not
    spec: dict[str, Any]
    error: str | None  # of the last try, if that failed
    error_code: int | None  # up to 9999 it is retried automatically
    tries: int  # failures in a row
    retry_at: datetime | None  # the next try, if the last one failed
    note: str | None  # why nothing happens, if that is not an error
    is_held: bool  # a job upstream is stopped, and so it does not go on
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def note_of(job: JobRecord) -> str | None:
    """What to do if this process lacks something that a job needs."""
    if find_consumer(job.kind) is None:
        return (
            f"{why_missing(job.kind)} in this process, which leaves the job alone: "
            f"import the module that defines it (known here: {', '.join(known_consumers())})"
        )
    trigger = make_trigger(job.spec.job_type, job.spec.schedule)
    if isinstance(trigger, Unknown):
        reason = trigger.schedule.get("reason") or f"no trigger {job.spec.job_type!r} is known"
        return f"{reason} in this process, which leaves the job alone: import its module"
    return None


def statuses(
    connection: sa.Connection, jobs: Sequence[JobRecord], fault: str | None = None
) -> list[JobStatus]:
    """The status of some jobs; `fault` is why no node is working, if none is."""
    facts = _Facts(connection, jobs, fault)
    return [facts.status(job) for job in jobs]


class _Facts:
    """What the status of some jobs consists of, read at once for all."""

    def __init__(
        self, connection: sa.Connection, jobs: Sequence[JobRecord], fault: str | None
    ) -> None:
        self._fault = None if fault is None else f"all nodes stand back: {fault}"
        self._freshness = Freshness(connection, jobs)
        self._watermarks = self._freshness.watermarks(jobs)
        self._oldest = lookup.oldest_snapshot(connection)
        self._outputs = derived_by(connection, [job.id for job in jobs])
        every = (*self._freshness.sources.values(), *self._outputs.values())
        self._names = _names(connection, {table for some in every for table in some})

    def _holder(self, job: JobRecord) -> JobRecord | None:
        """The upstream job that a job waits for, if any: one that is stopped before others."""
        freshness = self._freshness
        behind = [one for one in freshness.upstream(job) if not freshness.is_fresh(one)]
        stopped = [one for one in behind if one.state in STOPPED]
        others = [one for one in behind if one.last.error is not None or note_of(one) is not None]
        return next(iter((*stopped, *others)), None)

    def _rebuilds(self, job: JobRecord) -> str | None:
        """What happens next to a job that was away for longer than history is kept."""
        if job.watermark is None or job.watermark >= self._oldest:
            return None
        return (
            f"it reflects the snapshot {job.watermark}, and what changed before {self._oldest} "
            "was purged: its next run rebuilds it in full"
        )

    def _table_names(self, tables: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._names.get(table, f"table {table}") for table in tables)

    def status(self, job: JobRecord) -> JobStatus:
        fresh = self._freshness.is_fresh(job)
        holder = None if fresh else self._holder(job)
        waits = None if holder is None else _waits_for(holder)
        error = job.last.error
        return JobStatus(
            job_id=job.id,
            table=job.home,
            name=job.name,
            kind=job.kind,
            state=job.state,
            watermark=self._watermarks[job.id],
            is_fresh=fresh,
            sources=self._table_names(self._freshness.sources[job.id]),
            outputs=self._table_names(self._outputs[job.id]),
            upstream=tuple(one.full_name for one in self._freshness.upstream(job)),
            spec=job.spec.to_dict(),
            error=None if error is None else error.message,
            error_code=None if error is None else error.code,
            tries=job.tries,
            retry_at=job.retry_at,
            note=note_of(job) or waits or (None if fresh else self._fault or self._rebuilds(job)),
            is_held=holder is not None and holder.state in STOPPED,
            created_at=job.created_at,
        )


def _waits_for(holder: JobRecord) -> str:
    error = holder.last.error
    reason = note_of(holder) if error is None else error.message
    why = f"is {holder.state}" if holder.state in STOPPED else "could not run yet"
    shown = f"it waits for {holder.full_name}, which {why}"
    return shown if reason is None else f"{shown}: {reason}"


def _names(connection: sa.Connection, tables: set[int]) -> dict[int, str]:
    """Names of tables, including dropped ones."""
    query = (
        sa.select(dl.table.c.table_id, dl.schema.c.schema_name, dl.table.c.table_name)
        .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
        .order_by(dl.table.c.begin_snapshot)
    )
    return {
        row.table_id: f"{row.schema_name}.{row.table_name}"
        for some in in_batches(sorted(tables))
        for row in connection.execute(query.where(dl.table.c.table_id.in_(some)))
    }
