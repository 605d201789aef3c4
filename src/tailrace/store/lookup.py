"""What exists at a snapshot: schemas, views and tables, read from the catalog.

Always true: a row is visible at the snapshots s with begin <= s < end, so that any snapshot can
be read at any time with the same statements, and no statement depends on another's moment.
Only what looks at a table's columns imports Arrow, so that lists start sooner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tailrace.arguments import show
from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.catalog.part import Int, Text
from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.store import tables as t

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.store.schema import Column, TableInfo


@dataclass(frozen=True, kw_only=True)
class ViewInfo:
    """A view as it is at one snapshot: the text of a query, in DuckDB's dialect.

    Views and tables share one namespace. A view is never altered: one that replaces another has
    another id. The text is stored as it is; who makes it knows what it reads. Ids below 0 are of
    views not committed yet.
    """

    id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    sql: str
    columns: tuple[str, ...] = ()  # other names for the query's columns; empty: its own

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def read_aliases(text: str | None) -> tuple[str, ...]:
    """The column names in that form."""
    return tuple(n.replace('""', '"') for n in re.findall(r'"((?:[^"]|"")*)"', text or ""))


# Statements that every small commit runs are built once: building one costs more than running it.
_AT = sa.bindparam("at", type_=Int)
_TABLE_ID = sa.bindparam("table_id", type_=Int)


def visible(table: sa.Table, at: int | sa.BindParameter[int]) -> sa.ColumnElement[bool]:
    """The condition that a row is visible at a snapshot."""
    ended = table.c.end_snapshot
    return sa.and_(table.c.begin_snapshot <= at, sa.or_(ended.is_(None), ended > at))


def same_name(column: sa.Column[Any], name: str | sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    """The condition that two names are equal but for case, as in Spark and DuckDB."""
    return sa.func.lower(column) == sa.func.lower(name)


_NEWEST = sa.select(sa.func.max(dl.snapshot.c.snapshot_id))
_OLDEST = sa.select(sa.func.min(dl.snapshot.c.snapshot_id))
# The numbers of these snapshots, within other statements.
NEWEST, OLDEST = _NEWEST.scalar_subquery(), _OLDEST.scalar_subquery()
NO_SNAPSHOT = 2**62  # nothing ever changes after it
_SNAPSHOT = sa.select(dl.snapshot.c.snapshot_id).where(dl.snapshot.c.snapshot_id == _AT)


def newest_snapshot(connection: sa.Connection) -> int:
    """The number of the newest snapshot."""
    return int(connection.execute(_NEWEST).scalar_one())


def oldest_snapshot(connection: sa.Connection) -> int:
    """The number of the oldest snapshot: earlier ones were purged."""
    return int(connection.execute(_OLDEST).scalar_one())


def has_snapshot(connection: sa.Connection, at: int) -> bool:
    """Whether the lake has a snapshot, and so all later ones."""
    return connection.execute(_SNAPSHOT, {"at": at}).first() is not None


def check_snapshot(connection: sa.Connection, at: int) -> None:
    """Refuse a snapshot that does not exist.

    What is read at it has to be read in the same moment (`Database.read_at_once`): a purge could
    come in between.
    """
    if isinstance(at, bool) or not isinstance(at, int):
        raise InvalidError(f"a snapshot is a number, not {show(at)}")
    if 0 <= at < 2**63 and has_snapshot(connection, at):
        return
    low, high = oldest_snapshot(connection), newest_snapshot(connection)
    if 0 <= at < low:
        raise NotFoundError(
            f"the snapshot {at} was purged: this lake has {low} to {high}",
            fix=Fix(Action.SHOW_RETENTION),
        )
    raise NotFoundError(f"there is no snapshot {at}: this lake has {low} to {high}")


def snapshot_at(connection: sa.Connection, moment: datetime) -> int | None:
    """The snapshot that was the newest at a moment; None if the lake has none that old."""
    s = dl.snapshot.c
    # The one before the first later one: the clocks of committers may differ a little.
    after = sa.select(sa.func.min(s.snapshot_id)).where(s.snapshot_time > moment)
    first = connection.execute(after).scalar_one()
    newest = sa.select(sa.func.max(s.snapshot_id))
    if first is not None:
        newest = newest.where(s.snapshot_id < first)
    snapshot = connection.execute(newest).scalar_one()
    return None if snapshot is None else int(snapshot)


def snapshot_time(connection: sa.Connection, at: int) -> datetime | None:
    """When a snapshot was made; None if the lake does not have it any more."""
    s = dl.snapshot.c
    query = sa.select(s.snapshot_time).where(s.snapshot_id == at)
    return connection.execute(query).scalar_one_or_none()


# The account that a schema belongs to; those of lakes without accounts belong to this one.
DEFAULT_TENANT = "default"
schema_owner: sa.ColumnElement[str] = sa.func.coalesce(t.own_schema.c.tenant, DEFAULT_TENANT)
schemas_with_owner = sa.select(dl.schema, schema_owner.label("tenant")).outerjoin(
    t.own_schema, t.own_schema.c.schema_id == dl.schema.c.schema_id
)


def find_schema(connection: sa.Connection, name: str, at: int) -> sa.Row[Any] | None:
    """The row of a schema, with its tenant."""
    return connection.execute(
        schemas_with_owner.where(same_name(dl.schema.c.schema_name, name), visible(dl.schema, at))
    ).one_or_none()


_TABLES = (
    sa.select(
        dl.table,
        dl.schema.c.schema_name,
        dl.schema.c.path.label("schema_path"),
        t.own_table.c.primary_key,
        schema_owner.label("tenant"),
        t.output.c.owner,
    )
    .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
    .join(t.own_table, t.own_table.c.table_id == dl.table.c.table_id)
    .outerjoin(t.own_schema, t.own_schema.c.schema_id == dl.table.c.schema_id)
    .outerjoin(
        t.output,
        sa.and_(t.output.c.table_id == dl.table.c.table_id, t.output.c.owned == 1),
    )
    .where(visible(dl.table, _AT), visible(dl.schema, _AT))
)
_TABLE_BY_ID = _TABLES.where(dl.table.c.table_id == _TABLE_ID)
_TABLE_BY_NAME = _TABLES.where(
    same_name(dl.schema.c.schema_name, sa.bindparam("schema", type_=Text)),
    same_name(dl.table.c.table_name, sa.bindparam("name", type_=Text)),
)
# Every version of every column until then: ids and physical names are never given twice.
_COLUMNS = (
    sa.select(dl.column, t.own_column.c.physical_name, t.vector_column.c.dimension)
    .outerjoin(
        t.own_column,
        sa.and_(
            t.own_column.c.table_id == dl.column.c.table_id,
            t.own_column.c.column_id == dl.column.c.column_id,
        ),
    )
    .outerjoin(
        t.vector_column,
        sa.and_(
            t.vector_column.c.table_id == dl.column.c.table_id,
            t.vector_column.c.column_id == dl.column.c.column_id,
        ),
    )
    .where(dl.column.c.table_id == _TABLE_ID, dl.column.c.begin_snapshot <= _AT)
    .order_by(dl.column.c.column_order)
)


def find_table(
    connection: sa.Connection, schema: str, name: str, at: int, tenant: str | None = None
) -> TableInfo | None:
    """A table as it is at a snapshot, or None; with a tenant, only if it is the tenant's."""
    wanted = {"schema": schema, "name": name, "at": at}
    row = connection.execute(_TABLE_BY_NAME, wanted).one_or_none()
    if row is None or (tenant is not None and row.tenant != tenant):
        return None
    return _table_info(connection, row, at)


def table_by_id(connection: sa.Connection, table_id: int, at: int) -> TableInfo | None:
    """A table as it is at a snapshot, or None if it is not there then."""
    row = connection.execute(_TABLE_BY_ID, {"table_id": table_id, "at": at}).one_or_none()
    return None if row is None else _table_info(connection, row, at)


def tables_there(connection: sa.Connection, at: int, ids: Iterable[int]) -> set[int]:
    """Which of some tables exist at a snapshot."""
    c = dl.table.c
    return {
        table_id
        for some in in_batches(sorted(ids))
        for table_id in connection.execute(
            sa.select(c.table_id).where(c.table_id.in_(some), visible(dl.table, at))
        ).scalars()
    }


def list_schemas(connection: sa.Connection, at: int, tenant: str) -> list[str]:
    """The names of a tenant's schemas."""
    query = (
        sa.select(dl.schema.c.schema_name)
        .outerjoin(t.own_schema, t.own_schema.c.schema_id == dl.schema.c.schema_id)
        .where(visible(dl.schema, at), schema_owner == tenant)
        .order_by(dl.schema.c.schema_name)
    )
    return list(connection.execute(query).scalars())


def list_tables(connection: sa.Connection, at: int, tenant: str) -> list[tuple[str, str]]:
    """Schema and name of every table of a tenant."""
    query = _TABLES.where(schema_owner == tenant).order_by(
        dl.schema.c.schema_name, dl.table.c.table_name
    )
    return [(row.schema_name, row.table_name) for row in connection.execute(query, {"at": at})]


_VIEWS = (
    sa.select(dl.view, dl.schema.c.schema_name, schema_owner.label("tenant"))
    .join(dl.schema, dl.schema.c.schema_id == dl.view.c.schema_id)
    .outerjoin(t.own_schema, t.own_schema.c.schema_id == dl.view.c.schema_id)
    .where(visible(dl.view, _AT), visible(dl.schema, _AT))
)
_VIEW_BY_NAME = _VIEWS.where(
    same_name(dl.schema.c.schema_name, sa.bindparam("schema", type_=Text)),
    same_name(dl.view.c.view_name, sa.bindparam("name", type_=Text)),
)


def find_view(
    connection: sa.Connection, schema: str, name: str, at: int, tenant: str | None = None
) -> ViewInfo | None:
    """A view as it is at a snapshot, or None; with a tenant, only if it is the tenant's."""
    wanted = {"schema": schema, "name": name, "at": at}
    row = connection.execute(_VIEW_BY_NAME, wanted).one_or_none()
    if row is None or (tenant is not None and row.tenant != tenant):
        return None
    return _view_info(row)


def list_views(connection: sa.Connection, at: int, tenant: str) -> list[ViewInfo]:
    """Every view of a tenant."""
    query = _VIEWS.where(schema_owner == tenant).order_by(
        dl.schema.c.schema_name, dl.view.c.view_name
    )
    return [_view_info(row) for row in connection.execute(query, {"at": at})]


def _view_info(row: sa.Row[Any]) -> ViewInfo:
    return ViewInfo(
        id=row.view_id,
        uuid=str(row.view_uuid),
        schema_id=row.schema_id,
        schema=row.schema_name,
        name=row.view_name,
        sql=row.sql,
        columns=read_aliases(row.column_aliases),
    )


def _table_info(connection: sa.Connection, row: sa.Row[Any], at: int) -> TableInfo:
    history = connection.execute(_COLUMNS, {"table_id": row.table_id, "at": at}).all()
    now = [c for c in history if not _ended(c.end_snapshot, at)]
    below: dict[int | None, list[Any]] = {}
    for part in now:
        below.setdefault(part.parent_column, []).append(part)
    from tailrace.store.schema import TableInfo

    return TableInfo(
        id=row.table_id,
        uuid=str(row.table_uuid),
        schema_id=row.schema_id,
        schema=row.schema_name,
        name=row.table_name,
        path=f"{row.schema_path}{row.path}",
        columns=tuple(_column(part, below) for part in below[None]),
        key=tuple(json.loads(row.primary_key)),
        next_column_id=max(part.column_id for part in history) + 1,
        physical_names=frozenset(p.physical_name.casefold() for p in history if p.physical_name),
        derived_by=row.owner,
    )


def _ended(end: int | None, at: int) -> bool:
    return end is not None and end <= at


def _column(part: Any, below: dict[int | None, list[Any]]) -> Column:
    from tailrace.store.schema import Column

    kind, inner = _type(part, below)
    return Column(
        id=part.column_id,
        name=part.column_name,
        physical=part.physical_name,
        type=kind,
        nullable=bool(part.nulls_allowed),
        inner=tuple(inner),
        dimension=part.dimension,
    )


def _type(part: Any, below: dict[int | None, list[Any]]) -> tuple[pa.DataType, list[int]]:
    from tailrace.spark_sql import types

    children, inner = [], []
    for child in below.get(part.column_id, ()):
        kind, ids = _type(child, below)
        children.append((child.column_name, kind))
        inner += [child.column_id, *ids]
    return types.from_lake_type(part.column_type, children), inner


def tables_of(tenant: str) -> sa.Select[int]:
    """Ids of the tables that a tenant has or had."""
    return (
        sa.select(dl.table.c.table_id)
        .outerjoin(t.own_schema, t.own_schema.c.schema_id == dl.table.c.schema_id)
        .where(schema_owner == tenant)
    )


def changed_tables(
    connection: sa.Connection, since: int, tenant: str | None = None
) -> list[tuple[int, int]]:
    """Ids of the tables whose rows changed after a snapshot, and when they did last."""
    c = t.own_table.c
    query = sa.select(c.table_id, c.last_change_snapshot).where(c.last_change_snapshot > since)
    changes = [(row.table_id, row.last_change_snapshot) for row in connection.execute(query)]
    if tenant is None:
        return changes
    # A query of its own for the few that changed: in a join, PostgreSQL may read all tables.
    own = tables_of(tenant)
    seen = {
        table_id
        for some in in_batches([table_id for table_id, _ in changes])
        for table_id in connection.execute(own.where(dl.table.c.table_id.in_(some))).scalars()
    }
    return [one for one in changes if one[0] in seen]
