"""What users are told of a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.catalog.database import in_batches
from tailrace.propagation import joblog
from tailrace.propagation.consumer import find_consumer, known_consumers, why_missing
from tailrace.propagation.job import State, shown
from tailrace.propagation.trigger import Unknown, make_trigger
from tailrace.store import lookup

# States that a job leaves only when a person does something.
STOPPED = (State.ERROR, State.CANCELED, State.PAUSED)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job, as it is at this moment."""

    job_id: int
    table: str  # what it is named under
    name: str
    kind: str
    state: State
    # The snapshot that its output reflects: the last one before its sources changed again; None
    # before the first iteration.
    watermark: int | None
    is_fresh: bool  # nothing of its sources is missing in its output
    sources: tuple[str, ...]
    outputs: tuple[str, ...]  # tables that it derives
    upstream: tuple[str, ...]  # jobs that it stands on, near and far
    spec: dict[str, Any]
    error: str | None  # of the last try, if that failed
    error_code: int | None  # up to 9999 it is tried again by itself
    tries: int  # failures in a row
    retry_at: datetime | None  # the next try, if the last one failed
    note: str | None  # why nothing happens, if that is not an error
    is_held: bool  # a job that it stands on is stopped, and so it does not go on
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def error_of(row: Any) -> str | None:
    """The message of a job's last try, if that failed."""
    found = json.loads(row.status).get("error")
    return None if found is None else str(found["message"])


def note_of(row: Any) -> str | None:
    """What to do, if this process lacks what a job needs, and so leaves it alone."""
    if find_consumer(row.kind) is None:
        return (
            f"{why_missing(row.kind)} in this process, which leaves the job alone: "
            f"import the module that defines it (known here: {', '.join(known_consumers())})"
        )
    spec = json.loads(row.spec)["trigger"]
    trigger = make_trigger(spec["job_type"], spec["schedule"])
    if isinstance(trigger, Unknown):
        reason = trigger.schedule.get("reason") or f"no trigger {spec['job_type']!r} is known"
        return f"{reason} in this process, which leaves the job alone: import its module"
    return None


def statuses(
    connection: sa.Connection, rows: Sequence[Any], fault: str | None = None
) -> list[JobStatus]:
    """The status of some jobs; `fault` is why no node does anything."""
    facts = _Facts(connection, rows, fault)
    return [facts.status(row) for row in rows]


class _Facts:
    """What the status of some jobs is made of, read at once for all."""

    def __init__(self, connection: sa.Connection, rows: Sequence[Any], fault: str | None) -> None:
        self._fault = None if fault is None else f"all nodes stand back: {fault}"
        ids = [row.job_id for row in rows]
        self._upstream = joblog.upstream_of(connection, ids)
        known = {row.job_id: row for row in rows}
        beneath = {i for some in self._upstream.values() for i in some} - set(known)
        self._rows = known | {row.job_id: row for row in joblog.rows_by_id(connection, beneath)}
        self._newest = lookup.newest_snapshot(connection)
        self._oldest = lookup.oldest_snapshot(connection)
        self._sources = joblog.sources_of(connection, list(self._rows))
        self._outputs = joblog.derived_by(connection, ids)
        every = (*self._sources.values(), *self._outputs.values())
        tables = {table for some in every for table in some}
        self._changed = joblog.last_changes(connection, tables)
        self._names = _names(connection, tables)
        self._there = lookup.tables_there(connection, self._newest, tables)
        behind = [i for i in ids if known[i].watermark is not None and not self._is_fresh(known[i])]
        self._until = joblog.unchanged_until(connection, behind)

    def _is_fresh(self, row: Any) -> bool:
        # A table that was dropped never changes again: that is not what fresh means.
        return row.watermark is not None and all(
            table in self._there and self._changed.get(table, -1) <= row.watermark
            for table in self._sources[row.job_id]
        )

    def _watermark(self, row: Any, *, fresh: bool) -> int | None:
        """It never goes back: what was fresh at a snapshot reflects it, whatever came after."""
        if fresh:
            return self._newest
        stored: int | None = row.watermark
        until = self._until.get(row.job_id)
        return stored if stored is None or until is None else max(stored, until)

    def _holder(self, row: Any) -> Any:
        """What a job that is behind waits for, of those that it stands on: the stopped first."""
        beneath = [self._rows[i] for i in self._upstream.get(row.job_id, ()) if i in self._rows]
        behind = [one for one in beneath if not self._is_fresh(one)]
        stopped = [one for one in behind if one.state in STOPPED]
        others = [one for one in behind if error_of(one) is not None or note_of(one) is not None]
        return next(iter((*stopped, *others)), None)

    def _rebuilds(self, row: Any) -> str | None:
        """What is to come for a job that was away for longer than history is kept."""
        if row.watermark is None or row.watermark >= self._oldest:
            return None
        return (
            f"it reflects the snapshot {row.watermark}, and what changed before {self._oldest} "
            "was purged: its next run rebuilds it in full"
        )

    def _table_names(self, tables: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._names.get(table, f"table {table}") for table in tables)

    def status(self, row: Any) -> JobStatus:
        fresh = self._is_fresh(row)
        holder = None if fresh else self._holder(row)
        waits = None if holder is None else _waits_for(holder)
        failure = json.loads(row.status).get("error")
        beneath = [self._rows[i] for i in self._upstream.get(row.job_id, ()) if i in self._rows]
        return JobStatus(
            job_id=row.job_id,
            table=row.home,
            name=row.name,
            kind=row.kind,
            state=shown(State(row.state), watermark=row.watermark, tries=row.tries),
            watermark=self._watermark(row, fresh=fresh),
            is_fresh=fresh,
            sources=self._table_names(self._sources[row.job_id]),
            outputs=self._table_names(self._outputs[row.job_id]),
            upstream=tuple(f"{one.home}/{one.name}" for one in beneath),
            spec=json.loads(row.spec),
            error=None if failure is None else failure["message"],
            error_code=None if failure is None else failure["code"],
            tries=row.tries,
            retry_at=row.retry_at,
            note=note_of(row) or waits or (None if fresh else self._fault or self._rebuilds(row)),
            is_held=holder is not None and holder.state in STOPPED,
            created_at=row.created_at,
        )


def _waits_for(holder: Any) -> str:
    reason = error_of(holder) or note_of(holder)
    why = f"is {holder.state}" if holder.state in STOPPED else "could not run yet"
    shown = f"it waits for {holder.home}/{holder.name}, which {why}"
    return shown if reason is None else f"{shown}: {reason}"


def _names(connection: sa.Connection, tables: set[int]) -> dict[int, str]:
    """Names of tables, also of those that were dropped."""
    query = (
        sa.select(t.table.c.table_id, t.schema.c.schema_name, t.table.c.table_name)
        .join(t.schema, t.schema.c.schema_id == t.table.c.schema_id)
        .order_by(t.table.c.begin_snapshot)
    )
    return {
        row.table_id: f"{row.schema_name}.{row.table_name}"
        for some in in_batches(sorted(tables))
        for row in connection.execute(query.where(t.table.c.table_id.in_(some)))
    }
