"""Tables, views and indexes with the facts that the catalog has of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.propagation import tables as pt
from tailrace.propagation.job_rows import spec_from_json
from tailrace.sql import system
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import is_hidden
from tailrace.views.definition import VIEW

_INT, _TEXT, _REAL = pa.int64(), pa.string(), pa.float64()
TABLES = {"table": _TEXT, "rows": _INT, "files": _INT, "bytes": _INT, "changed": _INT}
INDEXES = {
    "table": _TEXT, "name": _TEXT, "using": _TEXT, "columns": _TEXT, "state": _TEXT,
    "watermark": _INT, "lag_snapshots": _INT, "lag_seconds": _REAL, "pending_rows": _INT,
    "rows": _INT, "segments": _INT, "bytes": _INT,
}  # fmt: skip
VIEWS = {
    "view": _TEXT, "state": _TEXT, "watermark": _INT, "lag_snapshots": _INT, "lag_rows": _INT,
    "lag_seconds": _REAL, "strategy": _TEXT, "query": _TEXT,
}  # fmt: skip


def tables(runtime: TenantRuntime) -> list[dict[str, Any]]:
    """Tables with their sizes, and the snapshot that last changed their rows."""
    with runtime.database.read_at_once() as connection:
        newest = lookup.newest_snapshot(connection)
        facts = _sizes(connection, newest)
        rows = []
        for schema, name in lookup.list_tables(connection, newest, runtime.tenant):
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


def views(runtime: TenantRuntime) -> list[dict[str, Any]]:
    """Views, how fresh they are, and how they were last refreshed."""
    fresh = {
        row["object"]: row
        for row in system.rows(runtime, "freshness")
        if row["kind"] == VIEW and row["name"] == VIEW
    }
    rows = []
    for home, name, query, strategy in _views(runtime):
        facts = fresh.get(home, {})
        shown = {column: facts.get(column) for column in VIEWS if column in facts}
        known = {**shown, "view": name, "query": query, "strategy": strategy}
        rows.append({column: known.get(column) for column in VIEWS})
    return rows


def _views(runtime: TenantRuntime) -> list[tuple[str, str, str, str | None]]:
    c, i = pt.job.c, pt.iteration.c
    last = (
        sa.select(i.job_id, sa.func.max(i.iteration_id).label("iteration_id"))
        .where(i.error.is_(None))
        .group_by(i.job_id)
        .subquery()
    )
    query = (
        sa.select(c.home, c.spec, i.strategy)
        .outerjoin(last, last.c.job_id == c.job_id)
        .outerjoin(pt.iteration, i.iteration_id == last.c.iteration_id)
        .where(c.tenant == runtime.tenant, c.kind == VIEW, c.name == VIEW, c.dropped_at.is_(None))
        .order_by(c.home)
    )
    found = []
    with runtime.database.read() as connection:
        for row in connection.execute(query):
            options = spec_from_json(row.spec).consumer
            found.append((row.home, options["view"], options["query"], row.strategy))
    return found


def indexes(runtime: TenantRuntime) -> list[dict[str, Any]]:
    """Indexes, what they are of, how fresh and how large they are."""
    words = {"table": "object", "using": "kind"}  # as CREATE INDEX says it
    rows = [
        {column: row[words.get(column, column)] for column in INDEXES}
        for row in system.rows(runtime, "indexes")
    ]
    return sorted(rows, key=lambda row: (row["table"], row["name"]))
