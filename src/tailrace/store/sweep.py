"""Deletes objects that nothing references and nothing can reference any more.

Always true: an object is deleted only if its transaction has ended (the row in `tailrace_txn` is
gone, so that it can no longer commit) and the catalog doesn't name it; or if the catalog dropped
it longer ago than readers are given to finish. Such an object is scheduled in the transaction that
takes the last row that names it out of the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from posixpath import basename
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.configuration import Configuration
from tailrace.store import tables as t
from tailrace.store.runtime import Runtime

# Called in transactions that belong together: an error ends the work there.
Fence = Callable[[sa.Connection], None]


def unfenced(_connection: sa.Connection) -> None:
    """For work that nobody else can take over."""


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
    on_deleted: Callable[[sa.Connection, int], None],
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


_NAME = re.compile(r"^([0-9a-f]{16})-[0-9a-f]{16}(-delete)?\.(parquet|segment)$")
_AT_ONCE = 500  # scheduled objects that are deleted in one transaction


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep did."""

    deleted: int  # objects
    expired: int  # transactions that will not commit any more


def sweep(
    runtime: Runtime, *, stopped: Callable[[], bool] = lambda: False, fence: Fence = unfenced
) -> Sweep:
    """Expire dead transactions, then delete the objects that they and others left behind."""
    # Listed first: what appears later belongs to transactions that this sweep leaves alone.
    listed: dict[str, list[str]] = {}
    for path in runtime.storage.list():
        match = _NAME.match(basename(path))
        if match:
            listed.setdefault(match.group(1), []).append(path)
    now = runtime.clock.now()
    with runtime.database.write() as connection:
        fence(connection)
        alive = now - configuration.read(connection).transaction_timeout
        expired = connection.execute(
            sa.delete(t.transaction).where(t.transaction.c.heartbeat_at < alive)
        ).rowcount
    runtime.step("transactions expired")
    with runtime.database.read() as connection:
        running = set(connection.execute(sa.select(t.transaction.c.txn_id)).scalars())
        candidates = [path for txn, paths in listed.items() if txn not in running for path in paths]
        garbage = list(_unreferenced(runtime, connection, candidates))
    runtime.storage.delete(garbage)
    runtime.step("garbage deleted")
    scheduled = 0
    forgotten = lambda connection, _count: fence(connection)  # noqa: E731
    while not stopped() and (some := delete_due(runtime, _AT_ONCE, forgotten)):
        scheduled += some
    return Sweep(deleted=len(garbage) + scheduled, expired=expired)


def _unreferenced(
    runtime: Runtime, connection: sa.Connection, paths: Iterable[str]
) -> Iterator[str]:
    # By the last part of the path: it is unique in the lake, and the catalog splits paths.
    for some in in_batches(paths):
        names = {basename(path): path for path in some}
        for table in (dl.data_file, dl.delete_file):
            query = sa.select(table.c.path).where(table.c.path.in_(names))
            for path in connection.execute(query).scalars():
                names.pop(basename(path), None)
        for layer in runtime.layers:
            for path in layer.objects_in_use(connection, names.values()):
                names.pop(basename(path), None)
        query = sa.select(dl.scheduled_for_deletion.c.path).where(
            dl.scheduled_for_deletion.c.path.in_(names.values())
        )
        for path in connection.execute(query).scalars():
            names.pop(basename(path), None)
        yield from names.values()
