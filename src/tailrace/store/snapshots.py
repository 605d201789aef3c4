"""The snapshots of a lake, as a tenant sees them: when each was made, and what it changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.store import tables as t
from tailrace.store.lookup import DEFAULT_TENANT, schema_owner, schemas_with_owner, tables_of


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One committed state of the lake."""

    id: int
    time: datetime
    changes: str  # what the commit did, in DuckLake's notation


def snapshots(connection: sa.Connection, tenant: str) -> list[Snapshot]:
    """All snapshots, oldest first."""
    seen = seen_by(connection, tenant)
    query = (
        sa.select(dl.snapshot, dl.snapshot_changes.c.changes_made)
        .join(dl.snapshot_changes, dl.snapshot_changes.c.snapshot_id == dl.snapshot.c.snapshot_id)
        .order_by(dl.snapshot.c.snapshot_id)
    )
    return [
        Snapshot(id=row.snapshot_id, time=row.snapshot_time, changes=seen(row.changes_made))
        for row in connection.execute(query)
    ]


# One entry of what a snapshot did: a word, and a number or quoted names.
_ENTRY = re.compile(r'(\w+):((?:"(?:[^"]|"")*"|[^",])+)')


def seen_by(connection: sa.Connection, tenant: str) -> Callable[[str], str]:
    """A function that leaves of a snapshot's changes what a tenant may see."""
    alone = connection.execute(sa.select(t.own_schema.c.schema_id).limit(1)).first() is None
    if tenant == DEFAULT_TENANT and alone:
        return lambda changes: changes
    rows = connection.execute(schemas_with_owner.where(schema_owner == tenant)).all()
    # Ids of tables and views are of one sequence.
    inside = set(connection.execute(tables_of(tenant)).scalars()) | set(
        connection.execute(
            sa.select(dl.view.c.view_id)
            .outerjoin(t.own_schema, t.own_schema.c.schema_id == dl.view.c.schema_id)
            .where(schema_owner == tenant)
        ).scalars()
    )
    schemas = {row.schema_id for row in rows}
    names = {'"' + row.schema_name.replace('"', '""') + '"' for row in rows}

    def is_seen(what: str, which: str) -> bool:
        if which.isdigit():
            return int(which) in (schemas if "schema" in what else inside)
        return which in names or any(which.startswith(f"{name}.") for name in names)

    return lambda changes: ",".join(
        f"{what}:{which}" for what, which in _ENTRY.findall(changes) if is_seen(what, which)
    )
