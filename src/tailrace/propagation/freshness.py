"""How fresh the outputs of jobs are: one definition, for everybody who asks.

An output is fresh if it reflects the last change of every source. The view `freshness` in the
catalog says the same in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.propagation import joblog
from tailrace.propagation.job import JobRecord
from tailrace.store import lookup


def is_fresh(watermark: int | None, changes: Iterable[int | None]) -> bool:
    """Whether an output that reflects the snapshot `watermark` lacks nothing of its sources.

    `changes` are the snapshots in which the sources changed last. None stands for one that is not
    known, or that was dropped: it never changes again, but that is not what fresh means.
    """
    return watermark is not None and all(
        change is not None and change <= watermark for change in changes
    )


class Freshness:
    """How far some jobs are, and those that they stand on: read at once for all."""

    def __init__(self, connection: sa.Connection, jobs: Iterable[JobRecord]) -> None:
        self._connection = connection
        asked = {job.id: job for job in jobs}
        self._upstream = joblog.upstream_of(connection, list(asked))
        beneath = {i for some in self._upstream.values() for i in some} - set(asked)
        self._jobs = asked | joblog.records_by_id(connection, beneath)
        self.sources = joblog.sources_of(connection, list(self._jobs))
        tables = {table for some in self.sources.values() for table in some}
        self.newest = lookup.newest_snapshot(connection)
        there = lookup.tables_there(connection, self.newest, tables)
        changed = joblog.last_changes(connection, tables)
        self._changes = {table: changed.get(table, -1) for table in there}

    def upstream(self, job: JobRecord) -> list[JobRecord]:
        """What a job stands on, near and far, without what is not there any more."""
        return [self._jobs[i] for i in self._upstream.get(job.id, ()) if i in self._jobs]

    def has_lost_upstream(self, job: JobRecord) -> bool:
        """Whether something that it stands on is not there any more."""
        return any(i not in self._jobs for i in self._upstream.get(job.id, ()))

    def is_fresh(self, job: JobRecord) -> bool:
        """Whether nothing of a job's sources is missing in its output."""
        sources = self.sources.get(job.id, ())
        return is_fresh(job.watermark, (self._changes.get(table) for table in sources))

    def watermarks(self, jobs: Iterable[JobRecord]) -> dict[int, int | None]:
        """The snapshots that outputs reflect: the last ones before their sources changed again.

        They never go back: what was fresh at a snapshot reflects it, whatever comes after.
        """
        asked = list(jobs)
        fresh = {job.id for job in asked if self.is_fresh(job)}
        behind = [job.id for job in asked if job.id not in fresh and job.watermark is not None]
        until = joblog.unchanged_until(self._connection, behind)

        def watermark(job: JobRecord) -> int | None:
            if job.id in fresh:
                return self.newest
            if job.watermark is None or job.id not in until:
                return job.watermark
            return max(job.watermark, until[job.id])

        return {job.id: watermark(job) for job in asked}
