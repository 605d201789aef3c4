"""How far one iteration goes: a large backlog is worked off in several, each committed.

The cut is at a snapshot, found from the catalog's counts of rows added and deleted. The same counts
tell a job that is nearly fresh from one that will take a while.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.columns import Int
from tailrace.catalog.database import in_batches
from tailrace.settings import Settings


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
    query = sa.select(f.table_id).where(f.begin_snapshot == snapshot).group_by(f.table_id)
    query = query.having(sa.func.sum(f.record_count) > settings.local_rows)
    return {
        table
        for some in in_batches(sorted(tables))
        for table in connection.execute(query.where(f.table_id.in_(some))).scalars()
    }


def _by_snapshot(
    table: sa.Table, snapshot: sa.ColumnElement[int], rows: sa.ColumnElement[int]
) -> sa.Select[int, int]:
    return (
        sa.select(snapshot, sa.func.sum(rows))
        .where(
            table.c.table_id.in_(sa.bindparam("tables", expanding=True)),
            snapshot > sa.bindparam("since", type_=Int),
            snapshot <= sa.bindparam("to", type_=Int),
        )
        .group_by(snapshot)
    )


_F, _D = dl.data_file.c, dl.delete_file.c
# Built once: a wake-up runs it for every group that has something to do.
_SIZES = sa.union_all(
    _by_snapshot(dl.data_file, _F.begin_snapshot, _F.record_count),
    _by_snapshot(dl.data_file, _F.end_snapshot, _F.record_count),
    # A delete file holds all positions ever deleted. Counted at its last snapshot that is too
    # many, so the cut comes too early rather than too late.
    _by_snapshot(
        dl.delete_file, sa.func.coalesce(_D.partial_max, _D.begin_snapshot), _D.delete_count
    ),
)
