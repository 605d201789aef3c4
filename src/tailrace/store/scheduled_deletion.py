"""Objects that the catalog no longer names, waiting to be deleted.

Always true: an object enters in the transaction that takes the last row that names it out of the
catalog, and is deleted only when that is longer ago than readers are given to finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.configuration import Configuration
from tailrace.store.runtime import Runtime

SCHEDULE = sa.insert(dl.scheduled_for_deletion)


def schedule(connection: sa.Connection, files: Iterable[tuple[int, str]], now: datetime) -> None:
    """Schedule objects for deletion, by the ids of their files and their paths in the lake."""
    if rows := scheduled(files, now):
        connection.execute(SCHEDULE, rows)


def scheduled(files: Iterable[tuple[int, str]], now: datetime) -> list[dict[str, Any]]:
    """What `SCHEDULE` takes."""
    return [
        {"data_file_id": number, "path": path, "path_is_relative": True, "schedule_start": now}
        for number, path in files
    ]


def is_due(now: datetime, kept: Configuration) -> sa.ColumnElement[bool]:
    """The condition that an object has waited long enough for readers to finish."""
    return dl.scheduled_for_deletion.c.schedule_start < now - kept.object_grace


def delete_due(
    runtime: Runtime,
    limit: int,
    on_deleted: Callable[[sa.Connection, int], None] = lambda _connection, _count: None,
) -> int:
    """Delete some of the objects that are due; returns how many, 0 if none was left.

    `on_deleted` is told how many, in the transaction that forgets them.
    """
    table = dl.scheduled_for_deletion
    query = sa.select(table.c.data_file_id, table.c.path).limit(limit)
    with runtime.database.read() as connection:
        due = is_due(runtime.clock.now(), configuration.read(connection))
        rows = connection.execute(query.where(due)).all()
    if not rows:
        return 0
    runtime.storage.delete(row.path for row in rows)
    runtime.step("replaced files deleted")
    # The rows go last: after a crash in between, deleting the same objects again is harmless.
    ids = [row.data_file_id for row in rows]
    with runtime.database.write() as connection:
        count = connection.execute(sa.delete(table).where(table.c.data_file_id.in_(ids))).rowcount
        on_deleted(connection, count)
    return len(rows)
