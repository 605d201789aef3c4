"""How far one iteration goes: a large backlog is worked off in several, each committed.

The cut is at a snapshot, found from the catalog's counts: rows of the files that were added, and
positions of the deletes.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.settings import Settings


def cut(
    connection: sa.Connection, tables: Iterable[int], since: int, to: int, settings: Settings
) -> int:
    """The last snapshot up to which the changes after `since` are not too many."""
    if to - since <= 1:
        return to
    sizes: dict[int, int] = {}
    wanted = {"tables": list(tables), "since": since, "to": to}
    for snapshot, rows in connection.execute(_SIZES, wanted):
        sizes[snapshot] = sizes.get(snapshot, 0) + int(rows)
    few = len(sizes) <= settings.iteration_snapshots
    if few and sum(sizes.values()) <= settings.iteration_rows:
        return to
    reached, total = since, 0
    for count, (snapshot, rows) in enumerate(sorted(sizes.items()), 1):
        total += rows
        too_many = total > settings.iteration_rows or count > settings.iteration_snapshots
        if too_many and reached > since:
            return reached
        reached = snapshot
    return to


def _by_snapshot(
    table: sa.Table, snapshot: sa.ColumnElement[int], rows: sa.ColumnElement[int]
) -> sa.Select[int, int]:
    return (
        sa.select(snapshot, sa.func.sum(rows))
        .where(
            table.c.table_id.in_(sa.bindparam("tables", expanding=True)),
            snapshot > sa.bindparam("since", type_=t.Int),
            snapshot <= sa.bindparam("to", type_=t.Int),
        )
        .group_by(snapshot)
    )


_F, _D = t.data_file.c, t.delete_file.c
# Built once: a wake-up runs it for every group that has something to do.
_SIZES = sa.union_all(
    _by_snapshot(t.data_file, _F.begin_snapshot, _F.record_count),
    _by_snapshot(t.data_file, _F.end_snapshot, _F.record_count),
    # A delete file holds all positions ever deleted: counted at its last snapshot, that is more
    # than what was deleted then, so that the cut comes rather too early.
    _by_snapshot(
        t.delete_file, sa.func.coalesce(_D.partial_max, _D.begin_snapshot), _D.delete_count
    ),
)
