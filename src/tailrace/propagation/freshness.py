"""How fresh the outputs of jobs are, and how far one iteration brings them.

An output is fresh if it reflects the last change of every source: the one definition that
everything else uses. The view `freshness` in the catalog says the same in SQL.

A large backlog is worked off in several iterations, each committed. The cut is at a snapshot, found
from the catalog's counts of rows added and deleted. The same counts tell a job that is nearly fresh
from one that will take a while.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.catalog.part import Int
from tailrace.propagation import joblog
from tailrace.propagation import tables as t
from tailrace.propagation.job import JobRecord
from tailrace.settings import Settings
from tailrace.store import lookup
from tailrace.store import tables as st
from tailrace.store.table_files import CAME, IS_CARRIED, LOST, WENT

_J = t.job.c


def is_fresh(watermark: int | None, changes: Iterable[int | None]) -> bool:
    """Whether an output that reflects the snapshot `watermark` reflects all of its sources.

    `changes` are the snapshots in which the sources changed last. None is one that is unknown or
    dropped: a dropped source never changes again, but an output without it is not fresh.
    """
    return watermark is not None and all(
        change is not None and change <= watermark for change in changes
    )


class Freshness:
    """How far some jobs and their upstream are, read at once for all."""

    def __init__(self, connection: sa.Connection, jobs: Iterable[JobRecord]) -> None:
        self._connection = connection
        asked = {job.id: job for job in jobs}
        self._upstream = joblog.upstream_of(connection, list(asked))
        upstream = {i for some in self._upstream.values() for i in some} - set(asked)
        self._jobs = asked | joblog.records_by_id(connection, upstream)
        self.sources = joblog.sources_of(connection, list(self._jobs))
        tables = {table for some in self.sources.values() for table in some}
        self.newest = lookup.newest_snapshot(connection)
        there = lookup.tables_there(connection, self.newest, tables)
        changed = last_changes(connection, tables)
        self._changes = {table: changed.get(table, -1) for table in there}

    def upstream(self, job: JobRecord) -> list[JobRecord]:
        """The upstream jobs of a job that still exist."""
        return [self._jobs[i] for i in self._upstream.get(job.id, ()) if i in self._jobs]

    def has_lost_upstream(self, job: JobRecord) -> bool:
        """Whether an upstream job of it no longer exists."""
        return any(i not in self._jobs for i in self._upstream.get(job.id, ()))

    def is_fresh(self, job: JobRecord) -> bool:
        """Whether a job's output reflects all of its sources."""
        sources = self.sources.get(job.id, ())
        return is_fresh(job.watermark, (self._changes.get(table) for table in sources))

    def watermarks(self, jobs: Iterable[JobRecord]) -> dict[int, int | None]:
        """The snapshots that outputs reflect: the last ones before their sources changed again.

        They never go back: an output that was fresh at a snapshot reflects it from then on.
        """
        asked = list(jobs)
        fresh = {job.id for job in asked if self.is_fresh(job)}
        behind = [job.id for job in asked if job.id not in fresh and job.watermark is not None]
        until = unchanged_until(self._connection, behind)

        def watermark(job: JobRecord) -> int | None:
            if job.id in fresh:
                return self.newest
            if job.watermark is None or job.id not in until:
                return job.watermark
            return max(job.watermark, until[job.id])

        return {job.id: watermark(job) for job in asked}


def last_changes(connection: sa.Connection, tables: Iterable[int]) -> dict[int, int]:
    """The snapshots in which some tables changed last."""
    c = st.own_table.c
    return {
        row.table_id: row.last_change_snapshot
        for some in in_batches(tables)
        for row in connection.execute(
            sa.select(c.table_id, c.last_change_snapshot).where(c.table_id.in_(some))
        )
    }


def unchanged_until(connection: sa.Connection, ids: Iterable[int]) -> dict[int, int]:
    """For jobs that are behind, the last snapshot before their sources changed again."""
    until: dict[int, int] = {}
    source, file, delete = t.job_source.c, dl.data_file.c, dl.delete_file.c
    last_delete = sa.func.coalesce(delete.partial_max, delete.begin_snapshot)
    # Of deletes that were added to an older delete file, only the last is known.
    first_delete = sa.case(
        (sa.and_(delete.begin_snapshot > _J.watermark, ~IS_CARRIED), delete.begin_snapshot),
        else_=_J.watermark + 1,
    )
    for table, first, last, counts in (
        (dl.data_file, file.begin_snapshot, file.begin_snapshot, CAME),
        (dl.data_file, file.end_snapshot, file.end_snapshot, WENT),
        (dl.delete_file, first_delete, last_delete, LOST),
    ):
        after = sa.and_(table.c.table_id == source.table_id, last > _J.watermark, counts)
        query = (
            sa.select(_J.job_id, sa.func.min(first).label("first"))
            .join(t.job_source, source.job_id == _J.job_id)
            .join(table, after)
            .group_by(_J.job_id)
        )
        for some in in_batches(ids):
            for row in connection.execute(query.where(_J.job_id.in_(some))):
                before = row.first - 1
                until[row.job_id] = min(until.get(row.job_id, before), before)
    return until


def cut(
    connection: sa.Connection, tables: Iterable[int], since: int, to: int, settings: Settings
) -> tuple[int, bool]:
    """The last snapshot up to which the changes after `since` are not too many; and are they few?

    Few are those that are read without Spark. For a single snapshot, `large_tables` tells that of
    all tables at once.
    """
    if to - since <= 1:
        return to, True
    sizes: dict[int, int] = {}
    wanted = {"tables": list(tables), "since": since, "to": to}
    for snapshot, count in connection.execute(_SIZES, wanted):
        sizes[snapshot] = sizes.get(snapshot, 0) + int(count)
    rows = sum(sizes.values())
    if len(sizes) <= settings.iteration_snapshots and rows <= settings.iteration_rows:
        return to, rows <= settings.local_rows
    reached, total = since, 0
    for number, (snapshot, more) in enumerate(sorted(sizes.items()), 1):
        total += more
        too_many = total > settings.iteration_rows or number > settings.iteration_snapshots
        if too_many and reached > since:
            return reached, False
        reached = snapshot
    return to, False


def large_tables(
    connection: sa.Connection, tables: Iterable[int], snapshot: int, settings: Settings
) -> set[int]:
    """The tables to which one snapshot has added more than a few rows."""
    f = dl.data_file.c
    query = sa.select(f.table_id).where(f.begin_snapshot == snapshot, CAME).group_by(f.table_id)
    query = query.having(sa.func.sum(f.record_count) > settings.local_rows)
    return {
        table
        for some in in_batches(sorted(tables))
        for table in connection.execute(query.where(f.table_id.in_(some))).scalars()
    }


def _by_snapshot(
    table: sa.Table,
    snapshot: sa.ColumnElement[int],
    rows: sa.ColumnElement[int],
    counts: sa.ColumnElement[bool],
) -> sa.Select[int, int]:
    return (
        sa.select(snapshot, sa.func.sum(rows))
        .where(
            table.c.table_id.in_(sa.bindparam("tables", expanding=True)),
            snapshot > sa.bindparam("since", type_=Int),
            snapshot <= sa.bindparam("to", type_=Int),
            counts,
        )
        .group_by(snapshot)
    )


_F, _D = dl.data_file.c, dl.delete_file.c
# Built once: a wake-up runs it for every group that has something to do.
_SIZES = sa.union_all(
    _by_snapshot(dl.data_file, _F.begin_snapshot, _F.record_count, CAME),
    _by_snapshot(dl.data_file, _F.end_snapshot, _F.record_count, WENT),
    # A delete file holds all positions ever deleted. Counted at its last snapshot that is too
    # many, so the cut comes too early rather than too late.
    _by_snapshot(
        dl.delete_file,
        sa.func.coalesce(_D.partial_max, _D.begin_snapshot),
        _D.delete_count,
        LOST,
    ),
)
