"""The tables that a run of a job has written to, entered with the commit of the run.

Always true: a job never writes to a table that leads back to one of its sources; and a table that
a job derives is closed to users, and dropped with the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from tailrace.errors import InvalidError
from tailrace.propagation import graph, joblog, versions
from tailrace.propagation.job import Claim, Job
from tailrace.store.schema import TableInfo
from tailrace.store.workspace import Commit

# A table, with the rows and bytes that were written to it.
Written = tuple[TableInfo, int, int]


def check_owned(info: TableInfo, job: Job) -> None:
    """Refuse a table that is not the job's own: neither made by this run nor owned before."""
    if info.id >= 0 and info.derived_by != job.id:
        raise InvalidError(
            f"{info.full_name} was not made by this run of {job.full_name}: it cannot be its own"
        )


def written_between(before: Sequence[Written], after: Sequence[Written]) -> list[Written]:
    """What was written between two moments of a transaction."""
    known = {info.id: (rows, size) for info, rows, size in before}
    more = []
    for info, rows, size in after:
        old_rows, old_size = known.get(info.id, (0, 0))
        if info.id not in known or rows != old_rows:
            more.append((info, rows - old_rows, size - old_size))
    return more


def enter(
    commit: Commit, claim: Claim, written: Iterable[Written], owned: Iterable[TableInfo]
) -> None:
    """Enter what a run has written to, and the new versions of what its job derives.

    `owned` are tables that are its own from now on.
    """
    touched = {commit.table_id(info): info for info, _, _ in written}
    derived = {i for i, info in touched.items() if info.derived_by == claim.job.id}
    own = {commit.table_id(info) for info in owned if info.derived_by is None}
    others = {i for i, info in touched.items() if info.derived_by is None} - own
    if own or others:
        _enter_new(commit.connection, claim, own, others)
    versions.enter(commit.connection, claim, own | derived, commit.snapshot)


def _enter_new(connection: sa.Connection, claim: Claim, own: set[int], others: set[int]) -> None:
    """Note the tables that it writes to for the first time, unless it would feed itself."""
    new = (own | others) - joblog.outputs_of(connection, claim.job.id)
    if new:
        graph.check_no_loop(connection, claim.job.full_name, claim.job.sources, new)
        joblog.add_outputs(connection, claim.job.id, sorted(new & own), owned=True)
        joblog.add_outputs(connection, claim.job.id, sorted(new - own), owned=False)
