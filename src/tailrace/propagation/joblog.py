"""The job log: reads and writes of the rows that say which jobs there are and how far they are.

Always true: writes happen under the commit lock and give the row the next number of one sequence
(`lsn`), so a reader that has read up to a number finds all later writes behind it. What a running
iteration writes is in `claims`. Only `from_row` and `to_row` know how a job is stored: the states
`new`, `idle` and `failing` all as `completed`, which the watermark and the tries tell apart. The
system views say the same in SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.database import in_batches
from tailrace.propagation import outputs
from tailrace.propagation import tables as t
from tailrace.propagation.job import AT_REST, Job, JobError, JobRecord, LastRun, NewJob, State
from tailrace.propagation.spec import JobSpec
from tailrace.store import tables as st
from tailrace.store.counters import next_number
from tailrace.store.names import fold

_J = t.job.c


# --- a row ---------------------------------------------------------------------------------------

# In an UPDATE: a running job is at rest again; one that was paused meanwhile stays so.
ENDED = sa.case((_J.state == State.RUNNING, State.COMPLETED), else_=_J.state)
# The same for one that has failed for good.
FAILED = sa.case((_J.state == State.RUNNING, State.ERROR.value), else_=_J.state)
# Whether a spec asks for history to be kept.
HAS_RETENTION = _J.spec.like('%"retention":%')


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


# --- reading ------------------------------------------------------------------------------------


def with_sources(
    connection: sa.Connection,
    records: Sequence[JobRecord],
    known: Callable[[int], Job | None] = lambda _job_id: None,
) -> list[tuple[Job, bool]]:
    """What a runner keeps of some jobs, and whether each is dropped.

    Of those that are `known`, sources and upstream are not read again: they never change.
    """
    before = {record.id: known(record.id) for record in records}
    new = [record for record in records if before[record.id] is None]
    now = {job.id: (job, dropped) for job, dropped in _read_with_sources(connection, new)}
    for record in records:
        job = before[record.id]
        if job is not None:
            again = Job.of(record, job.sources, job.upstream)
            now[record.id] = again, record.dropped_at is not None
    return [now[record.id] for record in records if record.id in now]


def jobs_by_id(connection: sa.Connection, ids: Iterable[int]) -> list[tuple[Job, bool]]:
    """Some jobs, and whether each is dropped."""
    return with_sources(connection, list(records_by_id(connection, ids).values()))


def records_by_id(connection: sa.Connection, ids: Iterable[int]) -> dict[int, JobRecord]:
    """Some jobs, dropped or not, by their ids."""
    return {
        row.job_id: from_row(row)
        for some in in_batches(ids)
        for row in connection.execute(sa.select(t.job).where(_J.job_id.in_(some)))
    }


def record(connection: sa.Connection, job_id: int) -> JobRecord | None:
    """A job, dropped or not; None if its row is gone or never was."""
    return records_by_id(connection, [job_id]).get(job_id)


def options(connection: sa.Connection, job_id: int) -> dict[str, Any]:
    """The consumer's options of a job whose row exists."""
    return records_by_id(connection, [job_id])[job_id].spec.consumer


def records(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[JobRecord]:
    """The jobs that are not dropped and meet some conditions, by home and name."""
    query = sa.select(t.job).where(_J.dropped_at.is_(None), *conditions)
    return [from_row(row) for row in connection.execute(query.order_by(_J.home, _J.name))]


def numbers(connection: sa.Connection) -> dict[int, int]:
    """The `lsn` of every job that is not dropped: what a reconciliation compares."""
    query = sa.select(_J.job_id, _J.lsn).where(_J.dropped_at.is_(None))
    return {row.job_id: row.lsn for row in connection.execute(query)}


def find(connection: sa.Connection, tenant: str, home: str, name: str) -> JobRecord | None:
    """The job of that name that is not dropped, or None."""
    same_name = sa.func.lower(_J.name) == sa.func.lower(name)
    jobs = records(connection, _J.tenant == tenant, _J.home == home, same_name)
    return jobs[0] if jobs else None


def names_under(
    connection: sa.Connection, tenant: str, homes: Iterable[str]
) -> set[tuple[str, str]]:
    """The homes and folded names of the jobs that are named under some tables."""
    query = sa.select(_J.home, _J.name).where(_J.tenant == tenant, _J.dropped_at.is_(None))
    return {
        (row.home, fold(row.name))
        for some in in_batches(homes)
        for row in connection.execute(query.where(_J.home.in_(some)))
    }


def sources_of(connection: sa.Connection, ids: Sequence[int] | None) -> dict[int, tuple[int, ...]]:
    """Source tables by job; of all jobs, if `ids` is None."""
    return _lists(connection, t.job_source, t.job_source.c.table_id, ids)


def upstream_of(connection: sa.Connection, ids: Sequence[int] | None) -> dict[int, tuple[int, ...]]:
    """The jobs upstream of each job, where there are any; of all jobs, if `ids` is None."""
    return _lists(connection, t.job_upstream, t.job_upstream.c.upstream_id, ids)


def _lists(
    connection: sa.Connection,
    table: sa.Table,
    column: sa.Column[int],
    ids: Sequence[int] | None,
) -> dict[int, tuple[int, ...]]:
    """What belongs to jobs, in its order."""
    job_id = table.c.job_id
    query = sa.select(job_id, column).order_by(job_id, table.c.position)
    lists: dict[int, list[int]] = {}
    for some in [None] if ids is None else in_batches(ids):
        part = query if some is None else query.where(job_id.in_(some))
        for job, one in connection.execute(part):
            lists.setdefault(job, []).append(one)
    return {job: tuple(some) for job, some in lists.items()}


def following(connection: sa.Connection, tables: Iterable[int]) -> list[JobRecord]:
    """The jobs that follow one of some tables."""
    c = t.job_source.c
    source = sa.select(c.job_id).where(c.table_id.in_(list(tables)))
    return records(connection, _J.job_id.in_(source))


def downstream_of(connection: sa.Connection, job_id: int) -> list[JobRecord]:
    """The jobs downstream of a job, the farthest first."""
    c = t.job_upstream.c
    jobs = records(connection, _J.job_id.in_(sa.select(c.job_id).where(c.upstream_id == job_id)))
    upstream = upstream_of(connection, [job.id for job in jobs])
    return sorted(jobs, key=lambda job: (-len(upstream[job.id]), job.id))


def _read_with_sources(
    connection: sa.Connection, records: Sequence[JobRecord]
) -> list[tuple[Job, bool]]:
    if not records:
        return []
    # Many at once are cheaper to read as a whole.
    ids = None if len(records) > 5000 else [job.id for job in records]
    sources = sources_of(connection, ids)
    upstream = upstream_of(connection, ids)
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    return [
        (
            Job.of(
                job,
                shared.setdefault(sources[job.id], sources[job.id]),
                upstream.get(job.id, ()),
            ),
            job.dropped_at is not None,
        )
        for job in records
        if job.id in sources  # or its rows are just being deleted
    ]


# --- writing: all of it under the commit lock ---------------------------------------------------


def insert_all(
    connection: sa.Connection, jobs: Sequence[NewJob], *, tenant: str, now: datetime
) -> list[int]:
    """Enter new jobs, whose names are free; returns their ids."""
    if not jobs:
        return []
    first_id = next_number(connection, "job", len(jobs)) - len(jobs) + 1
    first_lsn = next_number(connection, "lsn", len(jobs)) - len(jobs) + 1
    numbered = list(enumerate(jobs, first_id))
    connection.execute(
        sa.insert(t.job),
        [
            to_row(
                {
                    "job_id": job_id,
                    "tenant": tenant,
                    "home": job.home,
                    "name": job.name,
                    "kind": job.spec.kind,
                    "spec": job.spec,
                    "state": State.NEW,
                    "epoch": 0,
                    "catches_up": False,
                    "lsn": first_lsn + job_id - first_id,
                    "tries": 0,
                    "last": LastRun(),
                    "created_at": now,
                }
            )
            for job_id, job in numbered
        ],
    )
    _insert_lists(connection, t.job_source, "table_id", ((i, job.sources) for i, job in numbered))
    upstream = ((job_id, job.upstream) for job_id, job in numbered)
    _insert_lists(connection, t.job_upstream, "upstream_id", upstream)
    for job_id, job in numbered:
        outputs.add_outputs(connection, job_id, job.outputs, owned=True)
    return [job_id for job_id, _ in numbered]


def _insert_lists(
    connection: sa.Connection,
    table: sa.Table,
    column: str,
    lists: Iterable[tuple[int, Sequence[int]]],
) -> None:
    """Enter what belongs to jobs, in its order."""
    rows = [
        {"job_id": job_id, "position": number, column: one}
        for job_id, some in lists
        for number, one in enumerate(some)
    ]
    if rows:
        connection.execute(sa.insert(table), rows)


def write(
    connection: sa.Connection,
    job_id: int,
    *conditions: sa.ColumnElement[bool],
    **values: Any,
) -> int | None:
    """Set fields of a job that is not dropped; its new `lsn`, or None if a condition fails."""
    lsn = next_number(connection, "lsn")
    statement = (
        sa.update(t.job)
        .where(_J.job_id == job_id, _J.dropped_at.is_(None), *conditions)
        .values(lsn=lsn, **to_row(values))
    )
    return lsn if connection.execute(statement).rowcount == 1 else None


def stop(connection: sa.Connection, job_id: int, **values: Any) -> int | None:
    """Change a job so that whatever runs for it can no longer commit."""
    return write(connection, job_id, epoch=_J.epoch + 1, **values)


def drop(connection: sa.Connection, job_id: int, now: datetime) -> bool:
    """Mark a job as dropped: from this commit on, nothing can be written for it."""
    c = st.output.c
    owned = sa.select(c.table_id).where(c.owner == job_id, c.owned == 1)
    connection.execute(sa.delete(t.version).where(t.version.c.table_id.in_(owned)))
    connection.execute(sa.delete(st.output).where(c.owner == job_id))
    return stop(connection, job_id, dropped_at=now) is not None


def delete_dropped(connection: sa.Connection, before: datetime) -> int:
    """Delete the rows of jobs that were dropped long ago."""
    old = sa.select(_J.job_id).where(_J.dropped_at < before)
    for table in (t.job_source, t.job_upstream):
        connection.execute(sa.delete(table).where(table.c.job_id.in_(old)))
    return int(connection.execute(sa.delete(t.job).where(_J.dropped_at < before)).rowcount)


def advance(connection: sa.Connection, watermarks: Mapping[int, tuple[int, int]]) -> int:
    """Store watermarks of jobs that had nothing to do; given by job, as stored and as they are now.

    Only forward, and only where the job is at rest, not dropped, and unchanged.
    """
    moved = 0
    for job_id, (stored, now) in watermarks.items():
        if now > stored:
            conditions = (_J.watermark == stored, _J.node_id.is_(None), _J.claim_to.is_(None))
            moved += write(connection, job_id, *conditions, watermark=now) is not None
    return moved
