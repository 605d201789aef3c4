"""The catalog rows that a purge removes.

Always true: a row goes only if it ended at or before the horizon, so that no snapshot that is left
shows it; and what keeps ids and names from being given twice stays as long as its table does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.store import lookup

KIND = "purge"  # of its tasks
# What a table has rows in, beside its files.
_OF_TABLES = (
    t.column,
    t.table_stats,
    t.schema_versions,
    t.own_table,
    t.own_column,
    t.version,
    t.vector_column,
)


def anchor_versions(connection: sa.Connection, horizon: int) -> None:
    """Of each derived table, keep the version that the horizon shows, as if it were made there.

    Nothing changed the table between the two, so that a read at either is the same.
    """
    v, later = t.version.c, t.version.alias()
    newer = sa.exists().where(
        later.c.table_id == v.table_id,
        later.c.commit_snapshot > v.commit_snapshot,
        later.c.commit_snapshot <= horizon,
    )
    connection.execute(sa.delete(t.version).where(v.commit_snapshot < horizon, newer))
    old = v.commit_snapshot < horizon
    connection.execute(sa.update(t.version).where(old).values(commit_snapshot=horizon))


def _superseded(horizon: int) -> sa.ColumnElement[bool]:
    """Of a column that was dropped, the last row stays: it keeps its id and its name in files
    from being given again.
    """
    c, later = t.column.c, t.column.alias()
    return sa.and_(
        c.end_snapshot <= horizon,
        sa.exists().where(
            later.c.table_id == c.table_id,
            later.c.column_id == c.column_id,
            later.c.begin_snapshot >= c.end_snapshot,
        ),
    )


def enter_tasks(connection: sa.Connection, oldest: int, horizon: int, now: datetime) -> None:
    """One for each table of which something ended since the last horizon."""
    own = t.own_table.c
    ended = [
        sa.exists().where(table.c.table_id == own.table_id, table.c.end_snapshot <= horizon)
        for table in (t.data_file, t.delete_file, t.table)
    ]
    columns = sa.exists().where(t.column.c.table_id == own.table_id, _superseded(horizon))
    # Only what changed since can have ended since.
    changed = sa.or_(own.last_change_snapshot > oldest, own.last_alter_snapshot > oldest)
    query = sa.select(own.table_id).where(changed, sa.or_(*ended, columns))
    connection.execute(sa.update(t.task).where(t.task.c.kind == KIND).values(snapshot=horizon))
    there = set(
        connection.execute(sa.select(t.task.c.table_id).where(t.task.c.kind == KIND)).scalars()
    )
    rows = [
        {"kind": KIND, "table_id": table_id, "snapshot": horizon, "created_at": now}
        for table_id in connection.execute(query).scalars()
        if table_id not in there
    ]
    if rows:
        connection.execute(sa.insert(t.task), rows)


def table_path(connection: sa.Connection, table_id: int) -> str:
    """Where a table's objects lie, also if it is dropped."""
    query = (
        sa.select(t.schema.c.path, t.table.c.path)
        .join(t.schema, t.schema.c.schema_id == t.table.c.schema_id)
        .where(t.table.c.table_id == table_id)
        .limit(1)
    )
    found = connection.execute(query).first()
    return "" if found is None else f"{found[0]}{found[1]}"


def ended_ids(
    connection: sa.Connection, number: sa.Column[Any], table_id: int, horizon: int, limit: int
) -> Sequence[int]:
    """Some of the files of a table that ended at or before a snapshot, by their ids."""
    c = number.table.c
    query = sa.select(number).where(c.table_id == table_id, c.end_snapshot <= horizon)
    return connection.execute(query.limit(limit)).scalars().all()


def delete_files(
    connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]
) -> list[tuple[int, str, int]]:
    """Delete rows of files; returns their ids, paths and sizes."""
    (number,) = table.primary_key.columns
    statement = sa.delete(table).where(condition)
    found = connection.execute(statement.returning(number, table.c.path, table.c.file_size_bytes))
    return [(row[0], row[1], row[2]) for row in found]


def take_segments(connection: sa.Connection, horizon: int) -> list[tuple[int, str, int]]:
    """Segments that no snapshot shows any more, or whose index was dropped: ids, paths, sizes.

    The ids are below 0: those above are of data files.
    """
    job = t.job.c
    taken: list[tuple[int, str, int]] = []
    own, newer = t.centroids.c, t.centroids.alias()
    # Of centroids, those that no segment is divided by, but for the newest.
    unused = sa.and_(
        sa.exists().where(newer.c.job_id == own.job_id, newer.c.centroids_id > own.centroids_id),
        ~sa.exists().where(t.segment.c.centroids == own.centroids_id),
    )
    for table, more in ((t.segment, t.segment.c.end_snapshot <= horizon), (t.centroids, unused)):
        there = sa.exists().where(job.job_id == table.c.job_id, job.dropped_at.is_(None))
        (number,) = table.primary_key.columns
        statement = sa.delete(table).where(sa.or_(~there, more))
        found = connection.execute(statement.returning(number, table.c.path, table.c.size_bytes))
        taken += [(-row[0], row[1], row[2]) for row in found if row[1]]
    return taken


def clean_table(connection: sa.Connection, table_id: int, horizon: int) -> None:
    """The end of a task, when the table's ended files are gone."""
    connection.execute(
        sa.delete(t.column).where(t.column.c.table_id == table_id, _superseded(horizon))
    )
    c = t.table.c
    connection.execute(sa.delete(t.table).where(c.table_id == table_id, c.end_snapshot <= horizon))
    left = connection.execute(sa.select(c.table_id).where(c.table_id == table_id)).first()
    if left is None:  # it was dropped
        for table in _OF_TABLES:
            connection.execute(sa.delete(table).where(table.c.table_id == table_id))
    task = t.task.c
    same = (task.kind == KIND, task.table_id == table_id, task.snapshot <= horizon)
    connection.execute(sa.delete(t.task).where(*same))


def clean_schemas(connection: sa.Connection) -> None:
    """Schemas that were dropped, when the last of their tables is gone."""
    c = t.schema.c
    inside = [sa.exists().where(o.c.schema_id == c.schema_id) for o in (t.table, t.view)]
    oldest = lookup.oldest_snapshot(connection)
    statement = sa.delete(t.schema).where(c.end_snapshot <= oldest, *(~some for some in inside))
    gone = connection.execute(statement.returning(c.schema_id)).scalars().all()
    connection.execute(sa.delete(t.own_schema).where(t.own_schema.c.schema_id.in_(gone)))
