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
from tailrace.propagation.consumer import find_consumer, known_consumers
from tailrace.propagation.job import State
from tailrace.propagation.trigger import Unknown, make_trigger
from tailrace.store import lookup


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job, as it is at this moment."""

    job_id: int
    table: str  # what it is named under
    name: str
    kind: str
    state: State
    # The snapshot that its output reflects: the newest, if its sources have not changed since
    # its last iteration; None before the first.
    watermark: int | None
    is_fresh: bool  # nothing of its sources is missing in its output
    sources: tuple[str, ...]
    outputs: tuple[str, ...]  # tables that it derives
    spec: dict[str, Any]
    error: str | None  # of the last try, if that failed
    error_code: int | None  # up to 9999 it is tried again by itself
    tries: int  # failures in a row
    retry_at: datetime | None
    note: str | None  # why nothing happens, if that is not an error
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
            f"no consumer {row.kind!r} is known in this process, which leaves the job alone: "
            f"import the module that defines it (known here: {', '.join(known_consumers())})"
        )
    spec = json.loads(row.spec)["trigger"]
    trigger = make_trigger(spec["job_type"], spec["schedule"])
    if isinstance(trigger, Unknown):
        reason = trigger.schedule.get("reason") or f"no trigger {spec['job_type']!r} is known"
        return f"{reason} in this process, which leaves the job alone: import its module"
    return None


def statuses(connection: sa.Connection, rows: Sequence[Any]) -> list[JobStatus]:
    """The status of some jobs."""
    newest = lookup.newest_snapshot(connection)
    ids = [row.job_id for row in rows]
    sources = joblog.sources_of(connection, ids)
    outputs = joblog.derived_by(connection, ids)
    tables = {table for some in (*sources.values(), *outputs.values()) for table in some}
    changed = joblog.last_changes(connection, tables)
    names = _names(connection, tables)
    there = lookup.tables_there(connection, newest, tables)
    return [
        _status(row, newest, sources[row.job_id], outputs[row.job_id], changed, names, there)
        for row in rows
    ]


def _status(
    row: Any,
    newest: int,
    sources: Sequence[int],
    outputs: Sequence[int],
    changed: dict[int, int],
    names: dict[int, str],
    there: set[int],
) -> JobStatus:
    stored = row.watermark
    # A table that was dropped never changes again: that is not what fresh means.
    fresh = stored is not None and all(
        table in there and changed.get(table, -1) <= stored for table in sources
    )
    failure = json.loads(row.status).get("error")
    return JobStatus(
        job_id=row.job_id,
        table=row.home,
        name=row.name,
        kind=row.kind,
        state=State(row.state),
        watermark=newest if fresh else stored,
        is_fresh=fresh,
        sources=tuple(names.get(table, f"table {table}") for table in sources),
        outputs=tuple(names.get(table, f"table {table}") for table in outputs),
        spec=json.loads(row.spec),
        error=None if failure is None else failure["message"],
        error_code=None if failure is None else failure["code"],
        tries=row.tries,
        retry_at=row.retry_at,
        note=note_of(row),
        created_at=row.created_at,
    )


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
