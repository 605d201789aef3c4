"""What a lake knows of itself, as rows: the system tables, and the lists of SHOW and of commands.

The system tables are views in the catalog's database (`catalog.part`), the same for every
reader. Here the rows of one tenant are read, with types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.part import VIEW_PREFIX, Time
from tailrace.propagation import history
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.names import is_hidden
from tailrace.store.runtime import TenantCatalog
from tailrace.store.snapshots import seen_by
from tailrace.views.jobs import jobs_of_views

Row = dict[str, Any]

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
SYSTEM_TABLES: Mapping[str, Mapping[str, str]] = {
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
    "tasks": {
        "task_id": INT, "type": TEXT, "object": TEXT, "name": TEXT, "state": TEXT,
        "priority": INT, "attempts": INT, "error": TEXT, "retry_at": TIME, "node": TEXT,
        "created_at": TIME, "modified_at": TIME, "result": TEXT,
    },
    "usage": {"day": TEXT, "iterations": INT, **_AMOUNTS},
}  # fmt: skip


def system_rows(catalog: TenantCatalog, name: str, *, limit: int | None = None) -> list[Row]:
    """The rows of a system table, the newest last; with a limit, the newest so many."""
    kinds = SYSTEM_TABLES[name]
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


_TABLES = {"table": TEXT, "rows": INT, "files": INT, "bytes": INT, "changed": INT}
_INDEXES = {
    "table": TEXT, "name": TEXT, "using": TEXT, "columns": TEXT, "state": TEXT,
    "watermark": INT, "lag_snapshots": INT, "lag_seconds": REAL, "pending_rows": INT,
    "rows": INT, "segments": INT, "bytes": INT,
}  # fmt: skip
_VIEWS = {
    "view": TEXT, "state": TEXT, "watermark": INT, "lag_snapshots": INT, "lag_rows": INT,
    "lag_seconds": REAL, "strategy": TEXT, "query": TEXT,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Rows, and the types of their columns by their names in Spark."""

    columns: Mapping[str, str]
    rows: list[Row]


def listing(catalog: TenantCatalog, what: str, *, limit: int | None = None) -> Listing:
    """All tables, views, …; with a limit, the last so many."""
    if what not in _OWN:
        rows = system_rows(catalog, what, limit=limit)
        return Listing(columns=SYSTEM_TABLES[what], rows=rows)
    columns, read = _OWN[what]
    rows = read(catalog)
    kept = rows if limit is None else rows[max(0, len(rows) - limit) :]
    return Listing(columns=columns, rows=kept)


def _schemas(catalog: TenantCatalog) -> list[Row]:
    with catalog.database.read_at_once() as connection:
        newest = lookup.newest_snapshot(connection)
        names = lookup.list_schemas(connection, newest, catalog.tenant)
    return [{"schema": name} for name in sorted(names)]


def _tables(catalog: TenantCatalog) -> list[dict[str, Any]]:
    """Tables with their sizes, and the snapshot that last changed their rows."""
    with catalog.database.read_at_once() as connection:
        newest = lookup.newest_snapshot(connection)
        facts = _sizes(connection, newest)
        rows = []
        for schema, name in lookup.list_tables(connection, newest, catalog.tenant):
            if not is_hidden(name):
                rows.append({"table": f"{schema}.{name}", **facts.get((schema, name), {})})
    return sorted(rows, key=lambda row: str(row["table"]))


def _sizes(connection: sa.Connection, at: int) -> dict[tuple[str, str], dict[str, Any]]:
    """By schema and name; deleted rows are not counted."""
    f, d = dl.data_file.c, dl.delete_file.c
    gone = (
        sa.select(d.table_id, sa.func.sum(d.delete_count).label("rows"))
        .where(lookup.visible(dl.delete_file, at))
        .group_by(d.table_id)
        .subquery()
    )
    here = (
        sa.select(
            f.table_id,
            sa.func.sum(f.record_count).label("rows"),
            sa.func.count().label("files"),
            sa.func.sum(f.file_size_bytes).label("bytes"),
        )
        .where(lookup.visible(dl.data_file, at))
        .group_by(f.table_id)
        .subquery()
    )
    none = sa.literal(0)
    query = (
        sa.select(
            dl.schema.c.schema_name,
            dl.table.c.table_name,
            (sa.func.coalesce(here.c.rows, none) - sa.func.coalesce(gone.c.rows, none)).label(
                "rows"
            ),
            sa.func.coalesce(here.c.files, none).label("files"),
            sa.func.coalesce(here.c.bytes, none).label("bytes"),
            t.own_table.c.last_change_snapshot.label("changed"),
        )
        .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
        .join(t.own_table, t.own_table.c.table_id == dl.table.c.table_id)
        .outerjoin(here, here.c.table_id == dl.table.c.table_id)
        .outerjoin(gone, gone.c.table_id == dl.table.c.table_id)
        .where(lookup.visible(dl.table, at), lookup.visible(dl.schema, at))
    )
    return {
        (row.schema_name, row.table_name): {
            "rows": int(row.rows), "files": int(row.files), "bytes": int(row.bytes),
            "changed": row.changed,
        }
        for row in connection.execute(query)
    }  # fmt: skip


def _views(catalog: TenantCatalog) -> list[Row]:
    """Views, how fresh they are, and how they were last refreshed."""
    fresh = {(row["object"], row["name"]): row for row in system_rows(catalog, "freshness")}
    with catalog.database.read() as connection:
        jobs = jobs_of_views(connection, catalog.tenant)
        strategies = history.last_strategies(connection, [job.id for job in jobs])
    rows = []
    for job in jobs:
        options = job.spec.consumer
        facts = {
            **fresh.get((job.home, job.name), {}),
            "view": options["view"],
            "query": options["query"],
            "strategy": strategies.get(job.id),
        }
        rows.append({column: facts.get(column) for column in _VIEWS})
    return rows


def _indexes(catalog: TenantCatalog) -> list[Row]:
    """Indexes, what they are of, how fresh and how large they are."""
    words = {"table": "object", "using": "kind"}  # as CREATE INDEX says it
    rows = [
        {column: row[words.get(column, column)] for column in _INDEXES}
        for row in system_rows(catalog, "indexes")
    ]
    return sorted(rows, key=lambda row: (row["table"], row["name"]))


# What is listed beside the system tables.
_OWN: Mapping[str, tuple[Mapping[str, str], Callable[[TenantCatalog], list[Row]]]] = {
    "tables": (_TABLES, _tables),
    "views": (_VIEWS, _views),
    "indexes": (_INDEXES, _indexes),
    "schemas": ({"schema": TEXT}, _schemas),
}
