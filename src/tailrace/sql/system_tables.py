"""The system tables: what a lake knows of itself, as rows.

They are views in the catalog's database (`catalog.part`), the same for every reader. Here
the rows of one tenant are read, with types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.columns import Time
from tailrace.catalog.part import VIEW_PREFIX
from tailrace.store.names import OWN_SCHEMA as SCHEMA
from tailrace.store.runtime import TenantCatalog
from tailrace.store.snapshots import seen_by

__all__ = ["INT", "REAL", "SCHEMA", "TABLES", "TEXT", "TIME", "rows"]

# Types by their names in Spark.
INT, TEXT, REAL, TIME = "bigint", "string", "double", "timestamp"
_IN_CATALOG: Mapping[str, Any] = {INT: sa.BigInteger, TEXT: sa.String, REAL: sa.Double, TIME: Time}
_AMOUNTS = {
    "seconds": REAL,
    "rows_read": INT,
    "bytes_read": INT,
    "rows_written": INT,
    "bytes_written": INT,
}
# The columns that users see. A tenant sees only its own rows, so the tenant is no column.
TABLES: Mapping[str, Mapping[str, str]] = {
    "jobs": {
        "job_id": INT, "object": TEXT, "name": TEXT, "kind": TEXT, "state": TEXT,
        "watermark": INT, "tries": INT, "error": TEXT, "retry_at": TIME,
        "running_on": TEXT, "created_at": TIME,
    },
    "iterations": {
        "iteration_id": INT, "object": TEXT, "name": TEXT, "strategy": TEXT,
        "from_snapshot": INT, "to_snapshot": INT, "started_at": TIME, "ended_at": TIME,
        **_AMOUNTS, "error": TEXT,
    },
    "freshness": {
        "object": TEXT, "name": TEXT, "kind": TEXT, "state": TEXT, "watermark": INT,
        "lag_snapshots": INT, "lag_rows": INT, "lag_seconds": REAL,
    },
    "indexes": {
        "object": TEXT, "name": TEXT, "kind": TEXT, "columns": TEXT, "state": TEXT,
        "watermark": INT, "lag_snapshots": INT, "lag_seconds": REAL, "pending_rows": INT,
        "rows": INT, "segments": INT, "bytes": INT, "error": TEXT, "options": TEXT,
    },
    "snapshots": {"snapshot_id": INT, "snapshot_time": TIME, "changes": TEXT},
    "usage": {"day": TEXT, "iterations": INT, **_AMOUNTS},
}  # fmt: skip


def rows(catalog: TenantCatalog, name: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of a system table, the newest last; with a limit, the newest so many."""
    kinds = TABLES[name]
    columns = [sa.column(column, _IN_CATALOG[kind]) for column, kind in kinds.items()]
    view = sa.table(f"{VIEW_PREFIX}{name}", *columns, sa.column("tenant", sa.String))
    query = sa.select(*columns)
    if name != "snapshots":
        query = query.where(view.c.tenant == catalog.tenant)
    query = query.select_from(view).order_by(columns[0].desc())
    if limit is not None:
        query = query.limit(limit)
    with catalog.database.read() as connection:
        newest_first = [dict(row) for row in connection.execute(query).mappings()]
        if name == "snapshots":
            seen = seen_by(connection, catalog.tenant)
            newest_first = [{**row, "changes": seen(row["changes"])} for row in newest_first]
    return newest_first[::-1]
