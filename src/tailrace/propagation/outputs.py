"""The tables that jobs write to, and the versions of those that they derive.

Both are entered with the commit of a run. A derived table changes by commits of its job. Each has a
*label*: the snapshot of the sources that the table reflects from then on. To read several derived
tables as of one snapshot of their sources, read each at the commit that `version_at` gives.

Always true: a job never writes to a table that leads back to one of its sources; a table that a job
derives is closed to users, and dropped with the job; and of two versions of a table the later one
has the higher label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tailrace.catalog.database import in_batches
from tailrace.errors import InvalidError
from tailrace.propagation import tables as t
from tailrace.propagation.job import Claim, Job
from tailrace.store import tables as st

if TYPE_CHECKING:
    from tailrace.store.schema import TableInfo
    from tailrace.store.workspace import Commit

# A table, with the rows and bytes that were written to it.
Written = tuple["TableInfo", int, int]


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
    _enter_versions(commit, claim, own | derived)


def derived_by(connection: sa.Connection, ids: Iterable[int]) -> dict[int, list[int]]:
    """The tables that are derived by some jobs, by job."""
    c = st.output.c
    derived: dict[int, list[int]] = {job_id: [] for job_id in ids}
    query = sa.select(c.owner, c.table_id).where(c.owned == 1)
    for some in in_batches(list(derived)):
        for row in connection.execute(query.where(c.owner.in_(some))):
            derived[row.owner].append(row.table_id)
    return derived


def outputs_of(connection: sa.Connection, job_id: int) -> set[int]:
    """All tables that a job is known to write to."""
    c = st.output.c
    return set(connection.execute(sa.select(c.table_id).where(c.owner == job_id)).scalars())


def add_outputs(
    connection: sa.Connection, job_id: int, tables: Sequence[int], *, owned: bool
) -> None:
    """Enter tables that a job writes to."""
    rows = [{"owner": job_id, "table_id": table, "owned": int(owned)} for table in tables]
    if rows:
        connection.execute(sa.insert(st.output), rows)


def _enter_new(connection: sa.Connection, claim: Claim, own: set[int], others: set[int]) -> None:
    """Note the tables that it writes to for the first time, unless it would feed itself."""
    new = (own | others) - outputs_of(connection, claim.job.id)
    if new:
        check_no_loop(connection, claim.job.full_name, claim.job.sources, new)
        add_outputs(connection, claim.job.id, sorted(new & own), owned=True)
        add_outputs(connection, claim.job.id, sorted(new - own), owned=False)


_V = t.version.c
_ENTER = sa.insert(t.version)


def _enter_versions(commit: Commit, claim: Claim, touched: set[int]) -> None:
    """Enter new versions of the tables derived by a job that its commit has touched.

    At its first run of all of them, so that a table that stays empty has a version too. A rebuild
    may leave a table as it was.
    """
    changed = touched
    if claim.since is None:
        owned = set(derived_by(commit.connection, [claim.job.id])[claim.job.id])
        query = sa.select(_V.table_id).where(_V.table_id.in_(owned))
        changed = touched | owned.difference(commit.connection.execute(query).scalars())
    rows = [
        {"table_id": table, "commit_snapshot": commit.snapshot, "label": claim.to}
        for table in sorted(changed)
    ]
    commit.statements.later(_ENTER, rows)


def version_at(connection: sa.Connection, table_id: int, label: int) -> int | None:
    """The commit that made a derived table what it is at a label; None if there was none yet."""
    query = (
        sa.select(_V.commit_snapshot)
        .where(_V.table_id == table_id, _V.label <= label)
        .order_by(_V.commit_snapshot.desc())
        .limit(1)
    )
    return connection.execute(query).scalar_one_or_none()


def anchor(connection: sa.Connection, horizon: int) -> None:
    """Of each derived table, keep the version that the horizon shows, as if it were made there.

    Nothing changed the table between the two, so that a read at either is the same.
    """
    later = t.version.alias()
    newer = sa.exists().where(
        later.c.table_id == _V.table_id,
        later.c.commit_snapshot > _V.commit_snapshot,
        later.c.commit_snapshot <= horizon,
    )
    connection.execute(sa.delete(t.version).where(_V.commit_snapshot < horizon, newer))
    old = _V.commit_snapshot < horizon
    connection.execute(sa.update(t.version).where(old).values(commit_snapshot=horizon))


def forget_table(connection: sa.Connection, table_id: int) -> None:
    """A derived table was dropped, and no snapshot is left that shows it."""
    connection.execute(sa.delete(t.version).where(_V.table_id == table_id))


def check_no_loop(
    connection: sa.Connection, job: str, sources: Iterable[int], outputs: Iterable[int]
) -> None:
    """Refuse outputs from which existing jobs lead back to a source."""
    ends = set(sources)
    seen: set[int] = set()
    reached = set(outputs)
    while reached:
        if reached & ends:
            raise InvalidError(
                f"{job} would feed itself: what it writes leads back to one of its sources; "
                "write to a table that none of its sources is derived from"
            )
        seen |= reached
        reached = _next_tables(connection, reached) - seen


def longest_chain(connection: sa.Connection) -> int:
    """How many jobs the longest chain has: each follows a table that the one before writes."""
    source, output = t.job_source.c, st.output.c
    query = (
        sa.select(output.owner, source.job_id)
        .select_from(st.output)
        .join(t.job_source, source.table_id == output.table_id)
        .distinct()
    )
    after: dict[int, set[int]] = {}
    for before, behind in connection.execute(query):
        after.setdefault(before, set()).add(behind)
    length, level = 1, set(after)
    while level := {job for before in level for job in after.get(before, ())}:
        length += 1
        if length > len(after) + 1:
            break  # a loop, which no commit allows
    return length


def _next_tables(connection: sa.Connection, tables: Iterable[int]) -> set[int]:
    source, output, job = t.job_source.c, st.output.c, t.job.c
    query = (
        sa.select(output.table_id)
        .select_from(t.job_source)
        .join(t.job, job.job_id == source.job_id)
        .join(st.output, output.owner == source.job_id)
        .where(source.table_id.in_(list(tables)), job.dropped_at.is_(None))
    )
    return set(connection.execute(query).scalars())
