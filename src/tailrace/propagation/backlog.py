"""How far one iteration goes: a large backlog is worked off in several, each committed.

The cut is at a snapshot, found from the catalog's counts: rows of the files that were added, and
positions of the deletes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
    for snapshot, rows in connection.execute(_sizes(list(tables), since, to)):
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


def _sizes(tables: list[int], since: int, to: int) -> sa.CompoundSelect[Any]:
    f, d = t.data_file.c, t.delete_file.c
    added = (
        sa.select(f.begin_snapshot, sa.func.sum(f.record_count))
        .where(f.table_id.in_(tables), f.begin_snapshot > since, f.begin_snapshot <= to)
        .group_by(f.begin_snapshot)
    )
    ended = (
        sa.select(f.end_snapshot, sa.func.sum(f.record_count))
        .where(f.table_id.in_(tables), f.end_snapshot > since, f.end_snapshot <= to)
        .group_by(f.end_snapshot)
    )
    # A delete file holds all positions ever deleted: counted at its last snapshot, that is more
    # than what was deleted then, so that the cut comes rather too early.
    last = sa.func.coalesce(d.partial_max, d.begin_snapshot)
    deleted = (
        sa.select(last, sa.func.sum(d.delete_count))
        .where(d.table_id.in_(tables), last > since, last <= to)
        .group_by(last)
    )
    return sa.union_all(added, ended, deleted)
