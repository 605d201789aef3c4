"""What the store asks of jobs: when tables are dropped, and which history they still need.

Always true: what a job needs is kept, unless the job was stopped (paused, canceled, in error, or
downstream of one that is) and is behind by more than the retention. Such a job is rebuilt in full
when it resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tailrace.catalog.database import in_batches
from tailrace.log import get_logger
from tailrace.propagation import joblog, outputs
from tailrace.propagation import tables as t
from tailrace.propagation.freshness import Freshness
from tailrace.propagation.job import STOPPED, JobRecord, State
from tailrace.propagation.joblog import HAS_RETENTION
from tailrace.propagation.node import live_nodes
from tailrace.propagation.registration import fail_followers
from tailrace.propagation.trigger import parse_interval
from tailrace.store import lookup
from tailrace.store import tables as st
from tailrace.store.runtime import Layer, Need, Runtime, UnusedObject

log = get_logger("tailrace.purge")

_J = t.job.c


class JobLayer(Layer):
    """The jobs of a lake, as the store meets them."""

    def dropping(self, runtime: Runtime, connection: sa.Connection, tables: Sequence[int]) -> None:
        fail_followers(connection, tables, runtime.clock.now())

    def forget_table(self, connection: sa.Connection, table_id: int) -> None:
        outputs.forget_table(connection, table_id)

    def prepare_purge(self, runtime: Runtime, limit: int) -> None:
        """Advance the watermarks of jobs whose sources have not changed: they need nothing old."""
        with runtime.database.read_at_once() as connection:
            idle = [job.record.id for job in self._jobs(runtime, connection, limit) if job.is_fresh]
        for some in in_batches(idle):  # others want to commit in between
            with runtime.database.lock() as connection:
                jobs = self._jobs(runtime, connection, limit, only=some)
                _advance(connection, [job for job in jobs if job.is_fresh])

    def needs(self, runtime: Runtime, connection: sa.Connection, limit: int) -> Iterable[Need]:
        """The snapshots below a limit that jobs need."""
        needs = [
            Need(snapshot=job.needs, who=f"the job {job.record.full_name}")
            for job in self._jobs(runtime, connection, limit)
            if job.needs is not None and not job.is_fresh and not job.is_stopped
        ]
        needs += self._versions_in_use(runtime, connection)
        return needs + self._retained(runtime, connection)

    def purging(
        self, runtime: Runtime, connection: sa.Connection, horizon: int
    ) -> Iterable[UnusedObject]:
        """The horizon moves: advance the jobs that have nothing to do, and release the others."""
        jobs = self._jobs(runtime, connection, horizon)
        _advance(connection, [job for job in jobs if job.is_fresh])
        for job in jobs:
            if job.is_fresh or not job.is_stopped:
                continue
            record = job.record
            if record.claim_to is not None and record.claim_to < horizon:
                # It can no longer end where it was meant to.
                joblog.write(connection, record.id, claim_to=None, catches_up=False)
            if job.needs is not None:
                log.warning(
                    "history of a job purged", job=record.full_name, watermark=record.watermark
                )
        outputs.anchor(connection, horizon)
        return ()

    def _retained(self, runtime: Runtime, connection: sa.Connection) -> list[Need]:
        """History that jobs ask to be kept, whatever they have read of it already."""
        now = runtime.clock.now()
        needs = []
        for job in joblog.records(connection, HAS_RETENTION):
            asked = job.spec.retention
            if asked is not None:
                at = lookup.snapshot_at(connection, now - parse_interval(asked))
                # None: all there is, is younger.
                snapshot = lookup.oldest_snapshot(connection) if at is None else at
                who = f"the job {job.full_name}, which keeps {asked} of history"
                needs.append(Need(snapshot=snapshot, who=who))
        return needs

    def _versions_in_use(self, runtime: Runtime, connection: sa.Connection) -> list[Need]:
        """The versions of derived tables that downstream jobs are reading.

        Jobs at rest need none in particular: the version at the horizon is always kept.
        """
        up, out, v = t.job_upstream.c, st.output.c, t.version.c
        # A rebuild reads at its end only.
        tails = _J.watermark >= lookup.oldest_snapshot(connection)
        since = sa.case((tails, _J.watermark), else_=_J.claim_to)
        running = sa.or_(_J.state == State.RUNNING, _J.node_id.in_(self._live(runtime, connection)))
        query = (
            sa.select(_J.home, _J.name, out.table_id, sa.func.max(v.commit_snapshot).label("made"))
            .join(t.job_upstream, up.job_id == _J.job_id)
            .join(st.output, sa.and_(out.owner == up.upstream_id, out.owned == 1))
            .join(t.version, sa.and_(v.table_id == out.table_id, v.label <= since))
            .where(_J.dropped_at.is_(None), running)
            .group_by(_J.home, _J.name, out.table_id)
        )
        return [
            Need(snapshot=row.made, who=f"the job {row.home}/{row.name}")
            for row in connection.execute(query)
        ]

    def _live(self, runtime: Runtime, connection: sa.Connection) -> set[str]:
        return live_nodes(connection, runtime.clock)

    def _jobs(
        self,
        runtime: Runtime,
        connection: sa.Connection,
        limit: int,
        only: Iterable[int] | None = None,
    ) -> list[_Job]:
        """The jobs whose watermark is below a limit."""
        behind = sa.or_(_J.watermark < limit, sa.and_(_J.watermark.is_(None), _J.claim_to < limit))
        only_some = [] if only is None else [_J.job_id.in_(list(only))]
        records = joblog.records(connection, behind, *only_some)
        if not records:
            return []
        family = _Family(connection, records, self._live(runtime, connection))
        oldest = lookup.oldest_snapshot(connection)
        return [
            _Job(
                record=job,
                needs=_needed(job, oldest, limit),
                is_fresh=family.is_fresh(job),
                is_stopped=family.is_stopped(job),
            )
            for job in records
        ]


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A job that is behind the wanted horizon."""

    record: JobRecord
    needs: int | None  # the oldest snapshot that it reads next; None: none below the limit
    is_fresh: bool  # nothing has changed since its watermark, which may be advanced
    is_stopped: bool


def _needed(job: JobRecord, oldest: int, limit: int) -> int | None:
    # Without a watermark, or with one that was purged, it reads all rows at its target.
    tails = job.watermark is not None and job.watermark >= oldest
    needed = job.watermark if tails else job.claim_to
    return None if needed is None or needed >= limit else needed


def _advance(connection: sa.Connection, jobs: list[_Job]) -> None:
    newest = lookup.newest_snapshot(connection)
    records = [job.record for job in jobs]
    moves = {one.id: (one.watermark, newest) for one in records if one.watermark is not None}
    joblog.advance(connection, moves)


class _Family:
    """Some jobs and their upstream."""

    def __init__(
        self, connection: sa.Connection, jobs: Iterable[JobRecord], live: set[str]
    ) -> None:
        self._freshness, self._live = Freshness(connection, jobs), live

    def is_fresh(self, job: JobRecord) -> bool:
        """Whether nothing has changed that a job or its upstream would have to read."""
        if self._freshness.has_lost_upstream(job):
            return False
        return all(self._is_settled(one) for one in (job, *self._freshness.upstream(job)))

    def _is_settled(self, job: JobRecord) -> bool:
        """Whether it has nothing to do: not begun, and fresh."""
        begun = job.node is not None or job.claim_to is not None
        return not begun and self._freshness.is_fresh(job)

    def is_stopped(self, job: JobRecord) -> bool:
        """Whether a job waits for a person: to resume it, or an upstream job that is behind."""
        if job.node in self._live:
            return False
        if self._freshness.has_lost_upstream(job):
            return True
        upstream = self._freshness.upstream(job)
        behind = [one for one in upstream if not self._is_settled(one)]
        return any(self._is_left(one) for one in (job, *behind))

    def _is_left(self, job: JobRecord) -> bool:
        return job.state in STOPPED and job.node not in self._live
