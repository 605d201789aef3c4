"""The system tables: what a lake knows of itself, as rows.

They are views in the catalog's database (`catalog.system_views`), the same for every reader. Here
the rows of one tenant are read, with types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tailrace.catalog import system_views
from tailrace.catalog.columns import Time
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import OWN_SCHEMA as SCHEMA
from tailrace.store.snapshots import seen_by

__all__ = ["SCHEMA", "TABLES", "rows"]

_INT, _TEXT, _REAL = pa.int64(), pa.string(), pa.float64()
_TIME = pa.timestamp("us", tz="UTC")
_AMOUNTS = {
    "seconds": _REAL,
    "rows_read": _INT,
    "bytes_read": _INT,
    "rows_written": _INT,
    "bytes_written": _INT,
}
# The columns that users see. A tenant sees only its own rows, so the tenant is no column.
TABLES: Mapping[str, Mapping[str, pa.DataType]] = {
    "jobs": {
        "job_id": _INT, "object": _TEXT, "name": _TEXT, "kind": _TEXT, "state": _TEXT,
        "watermark": _INT, "tries": _INT, "error": _TEXT, "retry_at": _TIME,
        "running_on": _TEXT, "created_at": _TIME,
    },
    "iterations": {
        "iteration_id": _INT, "object": _TEXT, "name": _TEXT, "strategy": _TEXT,
        "from_snapshot": _INT, "to_snapshot": _INT, "started_at": _TIME, "ended_at": _TIME,
        **_AMOUNTS, "error": _TEXT,
    },
    "freshness": {
        "object": _TEXT, "name": _TEXT, "kind": _TEXT, "state": _TEXT, "watermark": _INT,
        "lag_snapshots": _INT, "lag_rows": _INT, "lag_seconds": _REAL,
    },
    "indexes": {
        "object": _TEXT, "name": _TEXT, "kind": _TEXT, "columns": _TEXT, "state": _TEXT,
        "watermark": _INT, "lag_snapshots": _INT, "lag_seconds": _REAL, "pending_rows": _INT,
        "rows": _INT, "segments": _INT, "bytes": _INT, "error": _TEXT, "options": _TEXT,
    },
    "snapshots": {"snapshot_id": _INT, "snapshot_time": _TIME, "changes": _TEXT},
    "usage": {"day": _TEXT, "iterations": _INT, **_AMOUNTS},
}  # fmt: skip


def rows(runtime: TenantRuntime, name: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of a system table, the newest last; with a limit, the newest so many."""
    kinds = TABLES[name]
    columns = [sa.column(column, _sql_type(kind)) for column, kind in kinds.items()]
    view = sa.table(f"{system_views.PREFIX}{name}", *columns, sa.column("tenant", sa.String))
    query = sa.select(*columns)
    if name != "snapshots":
        query = query.where(view.c.tenant == runtime.tenant)
    query = query.select_from(view).order_by(columns[0].desc())
    if limit is not None:
        query = query.limit(limit)
    with runtime.database.read() as connection:
        newest_first = [dict(row) for row in connection.execute(query).mappings()]
        if name == "snapshots":
            seen = seen_by(connection, runtime.tenant)
            newest_first = [{**row, "changes": seen(row["changes"])} for row in newest_first]
    return newest_first[::-1]


def _sql_type(kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return Time
    if pa.types.is_integer(kind):
        return sa.BigInteger
    return sa.Double if pa.types.is_floating(kind) else sa.String
