"""Claims: a node enters jobs as running before it runs them, and the outcome afterwards.

Always true: all of it happens under the commit lock. The outcome is written only if the job's epoch
is still the claim's, so it has no effect once the job was dropped, canceled or taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.database import Together, in_batches
from tailrace.catalog.part import Int, Text
from tailrace.errors import ConflictError
from tailrace.propagation import tables as t
from tailrace.propagation.job import Claim, Job, JobError, JobRecord, LastRun, Member, State, Work
from tailrace.propagation.joblog import (
    ENDED,
    FAILED,
    from_row,
    record,
    to_row,
    write,
)
from tailrace.store.counters import COUNT, counted, next_number
from tailrace.store.lookup import OLDEST

_J = t.job.c


# Built once: every iteration runs them.
_TO_CLAIM = sa.select(t.job, OLDEST.label("oldest")).where(
    _J.job_id.in_(sa.bindparam("ids", expanding=True))
)
_CLAIMED = sa.bindparam("claimed", type_=Int)
_ENTERED: dict[str, sa.ColumnElement[Any]] = {
    name: sa.bindparam(name)
    for name in ("state", "watermark", "claim_to", "catches_up", "node_id", "epoch")
}
_CLAIM = sa.update(t.job).where(_J.job_id == _CLAIMED).values({**_ENTERED, "lsn": counted("lsn")})
# Of a job at rest that nobody has written since it was planned: every write has another number.
_CLAIM_AT_ONCE = _CLAIM.where(
    _J.lsn == sa.bindparam("planned", type_=Int),
    _J.node_id.is_(None),
    _J.dropped_at.is_(None),
    _J.state == State.COMPLETED,
    sa.bindparam("claim_to", type_=Int) >= OLDEST,
).returning(t.job)
_COMPLETE = (
    sa.update(t.job)
    .where(
        _J.job_id == _CLAIMED,
        _J.dropped_at.is_(None),
        _J.epoch == sa.bindparam("claim_epoch", type_=Int),
        _J.node_id == sa.bindparam("claimer", type_=Text),
        _J.watermark.is_not_distinct_from(sa.bindparam("since", type_=Int)),
    )
    .values(
        state=ENDED,
        watermark=sa.bindparam("watermark"),
        status=sa.bindparam("status"),
        lsn=counted("lsn"),
        claim_to=None,
        node_id=None,
        tries=0,
        retry_at=None,
    )
)


class FencedError(ConflictError):
    """The job was dropped, canceled or taken over: this iteration must not commit."""


def claim(
    connection: sa.Connection, work: Work, *, node: str, live: Callable[[sa.Connection], set[str]]
) -> list[Claim]:
    """Enter the jobs of a work as running on a node, except those that have changed since.

    Jobs that commit together are claimed together or not at all. A claim of another node counts as
    long as that node is among the `live` ones.
    """
    claimed = _claim_at_once(connection, work, node)
    if claimed is not None:
        return [claimed]
    members = {member.job.id: member for member in work.members}
    upstream = {i for member in work.members for i in member.job.upstream}
    records = _records(connection, {*members, *upstream}, work.to)
    alive: set[str] | None = None

    def is_free(job: JobRecord) -> bool:
        nonlocal alive
        if job.node is not None and alive is None:
            alive = live(connection)
        return job.node is None or job.node not in (alive or ())

    def may_claim(member: Member) -> bool:
        job = records.get(member.job.id)
        if job is None or not _is_as_planned(job, member.job, work.to):
            return False
        at_rest = job.is_at_rest and job.node is None
        return at_rest or (job.state is State.RUNNING and is_free(job))

    def has_upstream(member: Member, bundle: tuple[int, ...]) -> bool:
        """Whether its upstream is at rest where it was planned to be, or comes along."""
        for job_id in member.job.upstream:
            job = records.get(job_id)
            if job is None or job.dropped_at is not None:
                return False
            at_rest = job.claim_to is None and is_free(job)
            there = at_rest and job.watermark is not None and job.watermark <= work.to
            if job_id not in bundle and not there:
                return False
        return True

    free: list[Member] = []
    for bundle in work.bundles():
        together = [members[job_id] for job_id in bundle]
        if all(may_claim(member) and has_upstream(member, bundle) for member in together):
            free += together
    return _enter(connection, records, free, work.to, node)


def _claim_at_once(connection: sa.Connection, work: Work, node: str) -> Claim | None:
    """Claim the only job of a work if it is as it was planned to the letter."""
    first = work.members[0]
    job = first.job
    if len(work.members) > 1 or job.upstream or not job.is_at_rest or job.node is not None:
        return None
    statements = Together(connection)
    statements.later(COUNT, {"which": ["lsn"], "many": 1})
    values = _values(first, work.to, node, job.epoch)
    given = {"claimed": job.id, "planned": job.lsn, "back": 0, **to_row(values)}
    row = statements.execute(_CLAIM_AT_ONCE, given).one_or_none()
    if row is None:
        return None
    record = from_row(row)
    return Claim(job=Job.of(record, job.sources), spec=record.spec, last=record.last)


def _values(member: Member, to: int, node: str, epoch: int) -> dict[str, Any]:
    """What a claim sets of a job."""
    return {
        "state": State.RUNNING,
        "watermark": member.since,
        "claim_to": to,
        "catches_up": member.catches_up,
        "node": node,
        "epoch": epoch,
    }


def _records(connection: sa.Connection, ids: set[int], to: int) -> dict[int, JobRecord]:
    """Jobs by their ids; none if a snapshot was purged: what is claimed is not."""
    records = {}
    for some in in_batches(ids):
        for row in connection.execute(_TO_CLAIM, {"ids": some}):
            if to < row.oldest:
                return {}
            records[row.job_id] = from_row(row)
    return records


def _is_as_planned(now: JobRecord, before: Job, to: int) -> bool:
    """Whether a job has not changed since it was planned."""
    if now.dropped_at is not None or now.epoch != before.epoch:
        return False
    return now.watermark == before.watermark and _leads_to(now.claim_to, before, to)


def _leads_to(claim_to: int | None, job: Job, to: int) -> bool:
    """Whether an iteration that was begun may end at a snapshot.

    With an upstream it may have to go further, because that went on without it.
    """
    return claim_to is None or claim_to == to or (bool(job.upstream) and claim_to < to)


def _enter(
    connection: sa.Connection,
    records: Mapping[int, JobRecord],
    members: Sequence[Member],
    to: int,
    node: str,
) -> list[Claim]:
    """Enter jobs that are as they were planned; nobody else can write now."""
    if not members:
        return []
    claims, rows = [], []
    for back, member in enumerate(members):
        before = records[member.job.id]
        epoch = before.epoch + (1 if before.state is State.RUNNING else 0)
        values = _values(member, to, node, epoch)
        rows.append({"claimed": before.id, "back": back, **to_row(values)})
        job = Job.of(before, member.job.sources, member.job.upstream)
        claims.append(Claim(job=replace(job, **values), spec=before.spec, last=before.last))
    statements = Together(connection)
    statements.later(COUNT, {"which": ["lsn"], "many": len(rows)})
    statements.later(_CLAIM, rows)
    statements.flush()
    return claims


def _ours(claim: Claim) -> list[sa.ColumnElement[bool]]:
    """That the job is still as this claim left it."""
    return [
        _J.epoch == claim.job.epoch,
        _J.node_id == claim.job.node,
        _J.watermark.is_not_distinct_from(claim.since),
    ]


def complete(statements: Together, claim: Claim, memory: dict[str, Any], back: int = 0) -> None:
    """Move the watermark to the end of the iteration; FencedError if the job has changed.

    `back` is how many numbers of the job log's sequence were taken after its own.
    """
    job = claim.job
    ours = {"claimed": job.id, "claim_epoch": job.epoch, "claimer": job.node, "since": claim.since}
    values = to_row({"watermark": claim.to, "last": LastRun(memory=memory)})
    stopped = FencedError(f"{job.full_name} was stopped: this iteration is not committed")
    statements.later(_COMPLETE, {**ours, **values, "back": back}, stopped)


def fail(
    connection: sa.Connection,
    claim: Claim,
    *,
    permanent: bool,
    tries: int,
    retry_at: datetime | None,
    error: JobError,
    repeats: bool = True,
) -> bool:
    """Put a job to rest with its error; it keeps its watermark and, if it `repeats`, its claim.

    The epoch rises, so that a thread that could not be stopped does not commit for a later try.
    """
    done = write(
        connection,
        claim.job.id,
        *_ours(claim),
        state=FAILED if permanent else ENDED,
        epoch=_J.epoch + 1,
        node=None,
        **({} if repeats else {"claim_to": None}),
        tries=tries,
        retry_at=retry_at,
        last=claim.last.with_error(error),
    )
    return done is not None


def release(connection: sa.Connection, job_id: int, node: str, *, repeats: bool = True) -> None:
    """Say that a node no longer runs anything for a job.

    Even of a dropped job: whoever dropped it may be waiting for this.
    """
    connection.execute(
        sa.update(t.job)
        .where(_J.job_id == job_id, _J.node_id == node)
        .values(
            lsn=next_number(connection, "lsn"),
            epoch=_J.epoch + 1,
            node_id=None,
            state=ENDED,
            **({} if repeats else {"claim_to": None}),
        )
    )


def enter_trigger_fault(
    connection: sa.Connection, job: Job, error: JobError, again: datetime
) -> None:
    """Enter that a job's trigger raised, and when to ask it again, unless the job has changed."""
    now = record(connection, job.id)
    if now is not None and now.lsn == job.lsn:
        last = now.last.with_error(error)
        write(connection, job.id, tries=job.tries + 1, retry_at=again, last=last)


def clear_trigger_fault(connection: sa.Connection, job: Job, code: int) -> None:
    """Enter that a job's trigger works again, if the trigger was what had failed."""
    now = record(connection, job.id)
    if now is None or now.lsn != job.lsn or now.last.error is None or now.last.error.code != code:
        return
    write(connection, job.id, tries=0, retry_at=None, last=now.last.with_error(None))
