"""Deletes objects that nothing references and nothing can reference any more.

Always true: an object is deleted only if its transaction has ended (the row in `tailrace_txn` is
gone, so that it can no longer commit) and the catalog doesn't name it; or if the catalog dropped
it longer ago than readers are given to finish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from posixpath import basename

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.store import tables as t
from tailrace.store.runtime import Runtime
from tailrace.store.scheduled_deletion import delete_due

_NAME = re.compile(r"^([0-9a-f]{16})-[0-9a-f]{16}(-delete)?\.(parquet|segment)$")
_AT_ONCE = 500  # scheduled objects that are deleted in one transaction


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep did."""

    deleted: int  # objects
    expired: int  # transactions that will not commit any more


def sweep(runtime: Runtime) -> Sweep:
    """Expire dead transactions, then delete the objects that they and others left behind."""
    # Listed first: what appears later belongs to transactions that this sweep leaves alone.
    listed: dict[str, list[str]] = {}
    for path in runtime.storage.list():
        match = _NAME.match(basename(path))
        if match:
            listed.setdefault(match.group(1), []).append(path)
    now = runtime.clock.now()
    with runtime.database.write() as connection:
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
    while some := delete_due(runtime, _AT_ONCE):
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
