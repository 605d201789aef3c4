"""Which commit made which version of a derived table, and what that version reflects.

A derived table changes by commits of its job. Each has a *label*: the snapshot of the sources that
the table reflects from then on. To read several derived tables as of one snapshot of their sources,
read each at the commit that `version_at` gives.

Always true: versions are entered by the commit that makes them, and of two versions of a table the
later one has the higher label.
"""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.propagation import joblog
from tailrace.propagation import tables as t
from tailrace.propagation.job import Claim

_V = t.version.c
_ENTER = sa.insert(t.version)


def enter(connection: sa.Connection, claim: Claim, touched: set[int], snapshot: int) -> None:
    """Enter new versions of the tables derived by a job that its commit has touched.

    At its first run of all of them, so that a table that stays empty has a version too. A rebuild
    may leave a table as it was.
    """
    changed = touched
    if claim.since is None:
        owned = set(joblog.derived_by(connection, [claim.job.id])[claim.job.id])
        query = sa.select(_V.table_id).where(_V.table_id.in_(owned))
        changed = touched | owned.difference(connection.execute(query).scalars())
    rows = [
        {"table_id": table, "commit_snapshot": snapshot, "label": claim.to}
        for table in sorted(changed)
    ]
    if rows:
        connection.execute(_ENTER, rows)


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
