"""Removes what a purge has left of a table: the rows of what ended at or before the horizon.

Always true: no snapshot that is left shows what goes, and what keeps ids and names from being given
twice stays as long as its table does. It goes in small transactions, each of which schedules the
objects of the files it takes out of the catalog; killed between two of them, another run goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.runtime import Layer, Runtime
from tailrace.store.sweep import Fence, schedule

# Where a table has rows, beside its files.
_OF_TABLES = (
    dl.column,
    dl.table_stats,
    dl.schema_versions,
    t.own_table,
    t.own_column,
    t.vector_column,
)
AT_ONCE = 500  # files in a transaction
_NOTHING = dict.fromkeys(("snapshots", "files", "bytes", "objects"), 0)


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What the cleaning of tables has removed from the catalog."""

    tables: int = 0
    files: int = 0
    bytes: int = 0


class Pace:
    """Keeps what is removed within the rate."""

    def __init__(self, runtime: Runtime, stop: threading.Event) -> None:
        self._rate, self._stop = max(1, runtime.settings.purge_rate), stop
        self._began, self._handled = time.monotonic(), 0

    def keep(self, count: int) -> None:
        """Wait until so many more files are within the rate."""
        self._handled += count
        ahead = self._handled / self._rate - (time.monotonic() - self._began)
        if count and ahead > 1:  # a second's worth may come at once
            self._stop.wait(ahead)


def clean(
    runtime: Runtime,
    table_id: int,
    *,
    purge: str,
    stop: threading.Event,
    fence: Fence,
    finish: Callable[[sa.Connection], None],
) -> Cleaned:
    """Remove what ended of a table at or before the horizon, for the purge of that id.

    `finish` is called in the last transaction. Stopped before, it is not.
    """
    done, pace = Cleaned(tables=1), Pace(runtime, stop)
    while not stop.is_set():
        with runtime.database.write() as connection:
            fence(connection)
            horizon = lookup.oldest_snapshot(connection)
            sizes, count = _take_files(runtime, connection, table_id, horizon)
            new = {"at": runtime.clock.now(), "horizon": horizon, "held_by": None}
            note(connection, purge, new, files=len(sizes), bytes=sum(sizes))
        done = replace(done, files=done.files + len(sizes), bytes=done.bytes + sum(sizes))
        pace.keep(len(sizes))
        if count:
            runtime.step("files purged")
        elif not stop.is_set() and _finish_table(runtime, table_id, horizon, finish):
            runtime.step("table purged")
            break
    return done


def _finish_table(
    runtime: Runtime, table_id: int, horizon: int, finish: Callable[[sa.Connection], None]
) -> bool:
    """Finish a table, unless the horizon has moved on."""
    # Under the lock, where it cannot: whoever moves it sees that the table has its task.
    with runtime.database.lock() as connection:
        if lookup.oldest_snapshot(connection) != horizon:
            return False
        if clean_table(connection, table_id, horizon, runtime.layers):
            clean_schemas(connection)
        finish(connection)
    return True


def _take_files(
    runtime: Runtime, connection: sa.Connection, table_id: int, horizon: int
) -> tuple[list[int], int]:
    """Remove some of a table's ended files from the catalog; their sizes, and how many ended."""
    prefix = table_path(connection, table_id)
    ids = ended_ids(connection, dl.data_file.c.data_file_id, table_id, horizon, AT_ONCE)
    taken = delete_files(connection, dl.data_file, dl.data_file.c.data_file_id.in_(ids))
    taken += delete_files(connection, dl.delete_file, dl.delete_file.c.data_file_id.in_(ids))
    for table in (dl.file_column_stats, t.own_file):
        connection.execute(sa.delete(table).where(table.c.data_file_id.in_(ids)))
    if not ids:  # delete files whose data file goes on
        ids = ended_ids(connection, dl.delete_file.c.delete_file_id, table_id, horizon, AT_ONCE)
        taken += delete_files(connection, dl.delete_file, dl.delete_file.c.delete_file_id.in_(ids))
    files = [(number, f"{prefix}{path}") for number, path, _ in taken]
    schedule(connection, files, runtime.clock.now())
    return [size for _, _, size in taken], len(ids)


def superseded(horizon: int) -> sa.ColumnElement[bool]:
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


def note(connection: sa.Connection, purge: str, new: Mapping[str, Any], **counts: int) -> None:
    """Add to what a purge has removed; `new` is the rest of its entry, if there is none yet."""
    if not any(counts.values()):
        return
    more = {name: t.purge.c[name] + count for name, count in counts.items()}
    same = sa.update(t.purge).where(t.purge.c.purge_id == purge)
    if not connection.execute(same.values(**more)).rowcount:
        values = {**_NOTHING, **new, **counts}
        connection.execute(sa.insert(t.purge).values(purge_id=purge, **values))


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
) -> bool:
    """Finish a table, once its ended files are gone; whether nothing is left of it."""
    connection.execute(
        sa.delete(dl.column).where(dl.column.c.table_id == table_id, superseded(horizon))
    )
    c = dl.table.c
    connection.execute(sa.delete(dl.table).where(c.table_id == table_id, c.end_snapshot <= horizon))
    left = connection.execute(sa.select(c.table_id).where(c.table_id == table_id)).first()
    if left is None:  # it was dropped
        for table in _OF_TABLES:
            connection.execute(sa.delete(table).where(table.c.table_id == table_id))
        for layer in layers:
            layer.forget_table(connection, table_id)
    return left is None


def clean_schemas(connection: sa.Connection) -> None:
    """Delete the rows of dropped schemas whose last table is gone."""
    c = dl.schema.c
    inside = [sa.exists().where(o.c.schema_id == c.schema_id) for o in (dl.table, dl.view)]
    oldest = lookup.oldest_snapshot(connection)
    statement = sa.delete(dl.schema).where(c.end_snapshot <= oldest, *(~some for some in inside))
    gone = connection.execute(statement.returning(c.schema_id)).scalars().all()
    connection.execute(sa.delete(t.own_schema).where(t.own_schema.c.schema_id.in_(gone)))
