"""The tasks of a purge, and the catalog rows that they remove.

Always true: a row goes only if it ended at or before the horizon, so that no snapshot that is left
shows it; and what keeps ids and names from being given twice stays as long as its table does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.layer import Layer

KIND = "purge"  # of its tasks
# Where a table has rows, beside its files.
_OF_TABLES = (
    dl.column,
    dl.table_stats,
    dl.schema_versions,
    t.own_table,
    t.own_column,
    t.vector_column,
)


def _superseded(horizon: int) -> sa.ColumnElement[bool]:
    """Of a column that was dropped, the last row stays: it keeps its id and its name in files
    from being given again.
    """
    c, later = dl.column.c, dl.column.alias()
    return sa.and_(
        c.end_snapshot <= horizon,
        sa.exists().where(
            later.c.table_id == c.table_id,
            later.c.column_id == c.column_id,
            later.c.begin_snapshot >= c.end_snapshot,
        ),
    )


def enter_tasks(connection: sa.Connection, oldest: int, horizon: int, now: datetime) -> None:
    """Enter a task for each table of which something ended since the last horizon."""
    own = t.own_table.c
    ended = [
        sa.exists().where(table.c.table_id == own.table_id, table.c.end_snapshot <= horizon)
        for table in (dl.data_file, dl.delete_file, dl.table)
    ]
    columns = sa.exists().where(dl.column.c.table_id == own.table_id, _superseded(horizon))
    # Only tables that changed since then can have lost anything.
    changed = sa.or_(own.last_change_snapshot > oldest, own.last_alter_snapshot > oldest)
    query = sa.select(own.table_id).where(changed, sa.or_(*ended, columns))
    connection.execute(sa.update(t.task).where(t.task.c.kind == KIND).values(snapshot=horizon))
    entered = set(
        connection.execute(sa.select(t.task.c.table_id).where(t.task.c.kind == KIND)).scalars()
    )
    rows = [
        {"kind": KIND, "table_id": table_id, "snapshot": horizon, "created_at": now}
        for table_id in connection.execute(query).scalars()
        if table_id not in entered
    ]
    if rows:
        connection.execute(sa.insert(t.task), rows)


def table_path(connection: sa.Connection, table_id: int) -> str:
    """Where a table's objects are, even if it was dropped."""
    query = (
        sa.select(dl.schema.c.path, dl.table.c.path)
        .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
        .where(dl.table.c.table_id == table_id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return "" if row is None else f"{row[0]}{row[1]}"


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
    rows = connection.execute(statement.returning(number, table.c.path, table.c.file_size_bytes))
    return [(row[0], row[1], row[2]) for row in rows]


def clean_table(
    connection: sa.Connection, table_id: int, horizon: int, layers: Iterable[Layer]
) -> None:
    """Finish a task, once the table's ended files are gone."""
    connection.execute(
        sa.delete(dl.column).where(dl.column.c.table_id == table_id, _superseded(horizon))
    )
    c = dl.table.c
    connection.execute(sa.delete(dl.table).where(c.table_id == table_id, c.end_snapshot <= horizon))
    left = connection.execute(sa.select(c.table_id).where(c.table_id == table_id)).first()
    if left is None:  # it was dropped
        for table in _OF_TABLES:
            connection.execute(sa.delete(table).where(table.c.table_id == table_id))
        for layer in layers:
            layer.forget_table(connection, table_id)
    task = t.task.c
    same = (task.kind == KIND, task.table_id == table_id, task.snapshot <= horizon)
    connection.execute(sa.delete(t.task).where(*same))


def clean_schemas(connection: sa.Connection) -> None:
    """Delete the rows of dropped schemas whose last table is gone."""
    c = dl.schema.c
    inside = [sa.exists().where(o.c.schema_id == c.schema_id) for o in (dl.table, dl.view)]
    oldest = lookup.oldest_snapshot(connection)
    statement = sa.delete(dl.schema).where(c.end_snapshot <= oldest, *(~some for some in inside))
    gone = connection.execute(statement.returning(c.schema_id)).scalars().all()
    connection.execute(sa.delete(t.own_schema).where(t.own_schema.c.schema_id.in_(gone)))
