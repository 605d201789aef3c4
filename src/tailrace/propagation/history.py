"""The history of iterations, a row for each job's run, and the usage per tenant and day.

Always true: an iteration that committed has its row, from the same commit. A row is deleted only
in the transaction that adds it to its day, so usage neither loses nor doubles one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime

import sqlalchemy as sa

from tailrace.catalog.database import Together, in_batches
from tailrace.propagation import tables as t
from tailrace.store.counters import counted

# `inline`: nobody asks for the number that it gets.
_RECORD = sa.insert(t.iteration).values(iteration_id=counted("iteration")).inline()
_SUMS = ("seconds", "rows_read", "bytes_read", "rows_written", "bytes_written")


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One run of one job."""

    job_id: int
    tenant: str
    sources: tuple[str, ...]
    from_snapshot: int | None  # None: from nothing
    to_snapshot: int
    kind: str  # snapshot or tail
    node_id: str
    started_at: datetime
    ended_at: datetime
    seconds: float
    strategy: str | None = None  # how the consumer did it, if it says so
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a tenant's jobs did on one day.

    Rows and bytes read count for each job, even where several shared one read.
    """

    tenant: str
    day: date
    iterations: int
    seconds: float
    rows_read: int
    bytes_read: int
    rows_written: int
    bytes_written: int


def record(statements: Together, done: Iteration, back: int = 0) -> None:
    """Enter an iteration; `back` is how many numbers of their sequence were taken after its own."""
    values = {f.name: getattr(done, f.name) for f in fields(done)}
    values["sources"] = json.dumps(done.sources)
    values["day"] = done.ended_at.astimezone(UTC).date().isoformat()
    statements.later(_RECORD, {"back": back, **values})


def iterations(
    connection: sa.Connection, tenant: str, *, home: str | None, job_id: int | None, limit: int
) -> list[Iteration]:
    """The last iterations of a tenant, of a table's jobs or of one job, newest first."""
    c = t.iteration.c
    query = sa.select(t.iteration).where(c.tenant == tenant).order_by(c.iteration_id.desc())
    if job_id is not None:
        query = query.where(c.job_id == job_id)
    elif home is not None:
        ids = sa.select(t.job.c.job_id).where(t.job.c.tenant == tenant, t.job.c.home == home)
        query = query.where(c.job_id.in_(ids))
    names = [f.name for f in fields(Iteration)]
    rows = connection.execute(query.limit(limit)).mappings()
    return [
        Iteration(**{n: row[n] for n in names} | {"sources": tuple(json.loads(row["sources"]))})
        for row in rows
    ]


def last_strategies(connection: sa.Connection, job_ids: Sequence[int]) -> dict[int, str | None]:
    """By job, how the last iteration that did not fail did its work."""
    c = t.iteration.c
    last = sa.select(sa.func.max(c.iteration_id)).where(c.error.is_(None)).group_by(c.job_id)
    query = sa.select(c.job_id, c.strategy).where(c.iteration_id.in_(last))
    strategies: dict[int, str | None] = {}
    for some in in_batches(job_ids):
        found = connection.execute(query.where(c.job_id.in_(some)))
        strategies |= {row.job_id: row.strategy for row in found}
    return strategies


def usage(connection: sa.Connection, tenant: str, since: date) -> list[Usage]:
    """What a tenant's jobs did, day by day (in UTC), from a day on."""
    if isinstance(since, datetime):
        with suppress(OverflowError, ValueError):  # at either end of time
            since = since.astimezone(UTC)
        since = since.date()
    totals: dict[str, dict[str, float]] = {}
    for query in (sa.select(t.usage), _by_day()):
        part = query.subquery()
        wanted = sa.select(part).where(part.c.tenant == tenant, part.c.day >= since.isoformat())
        for row in connection.execute(wanted):
            day = totals.setdefault(row.day, dict.fromkeys(("iterations", *_SUMS), 0))
            for name in day:
                day[name] += getattr(row, name)
    return [
        Usage(
            tenant=tenant,
            day=date.fromisoformat(day),
            seconds=float(sums["seconds"]),
            **{name: int(sums[name]) for name in ("iterations", *_SUMS[1:])},
        )
        for day, sums in sorted(totals.items())
    ]


def _by_day(*conditions: sa.ColumnElement[bool]) -> sa.Select[tuple[object, ...]]:
    c = t.iteration.c
    sums: Sequence[sa.ColumnElement[object]] = [sa.func.sum(c[name]).label(name) for name in _SUMS]
    return (
        sa.select(c.tenant, c.day, sa.func.count().label("iterations"), *sums)
        .where(*conditions)
        .group_by(c.tenant, c.day)
    )


def old_days(connection: sa.Connection, before: datetime) -> list[str]:
    """The days before a moment that still have their iterations one by one."""
    day = t.iteration.c.day
    query = sa.select(day).where(day < before.astimezone(UTC).date().isoformat()).distinct()
    return list(connection.execute(query).scalars())


def add_up(connection: sa.Connection, day: str) -> int:
    """Add the iterations of a day to its usage, and delete them."""
    old = t.iteration.c.day == day
    for row in connection.execute(_by_day(old)).mappings().all():
        same = sa.and_(t.usage.c.tenant == row["tenant"], t.usage.c.day == row["day"])
        more = {name: t.usage.c[name] + row[name] for name in ("iterations", *_SUMS)}
        if not connection.execute(sa.update(t.usage).where(same).values(**more)).rowcount:
            connection.execute(sa.insert(t.usage).values(**row))
    return int(connection.execute(sa.delete(t.iteration).where(old)).rowcount)
