"""Creates a lake's catalog and brings an older one up to date.

Owned here: the versions. `ducklake_metadata.version` is the format's, which we neither read nor
write if it is another than 1.0; `tailrace_metadata.version` counts the migrations below, which
only go forward.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

import sqlalchemy as sa

from tailrace.catalog import system_views
from tailrace.catalog import tables as t
from tailrace.catalog.database import Database
from tailrace.errors import InvalidError
from tailrace.fixes import Action, Fix

FORMAT_VERSION = "1.0"
_IS_DATA_PATH = sa.and_(t.lake_metadata.c.key == "data_path", t.lake_metadata.c.scope.is_(None))


def _create_store(connection: sa.Connection) -> None:
    t.metadata.create_all(connection)


def _create_propagation(connection: sa.Connection) -> None:
    t.propagation.create_all(connection)
    connection.execute(
        sa.insert(t.counter), [{"name": name, "value": 0} for name in ("job", "lsn", "iteration")]
    )
    # What tells this lake from others, for keys that are given to systems outside.
    connection.execute(sa.insert(t.own_metadata).values(key="lake_id", value=uuid4().hex[:12]))


def _create_views(connection: sa.Connection) -> None:
    t.views.create_all(connection)


def _create_upkeep(connection: sa.Connection) -> None:
    t.upkeep.create_all(connection)


def _create_indexes(connection: sa.Connection) -> None:
    t.indexes.create_all(connection)
    connection.execute(sa.insert(t.counter).values(name="segment", value=0))


def _create_outcomes(connection: sa.Connection) -> None:
    t.outcomes.create_all(connection)


def _add_faults(connection: sa.Connection) -> None:
    """Why a node stands back."""
    # A new lake has the column already: its tables are made as they are today.
    if all(
        column["name"] != "fault" for column in sa.inspect(connection).get_columns("tailrace_node")
    ):
        connection.exec_driver_sql("ALTER TABLE tailrace_node ADD COLUMN fault VARCHAR")


def _only_views(_connection: sa.Connection) -> None:
    """A version with other system views: those are made anew after every migration."""


# Migration n turns version n into n + 1. Never change one that was released: append.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (
    _create_store,
    _create_propagation,
    _create_views,
    _create_upkeep,
    _only_views,
    _create_indexes,
    _only_views,
    _create_outcomes,
    _add_faults,
    _only_views,
)


def open_catalog(
    database: Database, *, data_path: str | None, beside: str | None, now: datetime, creator: str
) -> str:
    """Create or migrate the catalog; returns the path under which the lake's objects lie.

    `data_path` is what the caller asks for. Without one, a lake in a directory keeps its objects
    in `beside`: wherever the directory is now, because it may have been moved or copied.
    """
    with database.read() as connection:
        found = _versions(connection)
    if found is None or found[1] < len(MIGRATIONS):
        with database.lock() as connection:
            _migrate(connection, data_path=data_path, beside=beside, now=now, creator=creator)
    with database.read() as connection:
        found = _versions(connection)
        assert found is not None
        _check(*found)
        stored = str(
            connection.execute(sa.select(t.lake_metadata.c.value).where(_IS_DATA_PATH)).scalar_one()
        )
        is_beside = connection.execute(
            sa.select(t.own_metadata.c.key).where(t.own_metadata.c.key == "data_is_beside")
        ).first()
    if is_beside and beside is not None:
        if stored != beside:
            with database.write() as connection:  # for other readers
                connection.execute(
                    sa.update(t.lake_metadata).where(_IS_DATA_PATH).values(value=beside)
                )
        stored = beside
    if data_path is not None and data_path != stored:
        raise InvalidError(
            f"this lake's objects are in {stored!r}, not in {data_path!r}",
            fix=Fix(Action.LEAVE_DATA_OUT),
        )
    return stored


def _versions(connection: sa.Connection) -> tuple[str, int] | None:
    present = set(sa.inspect(connection).get_table_names())
    if t.lake_metadata.name not in present:
        return None
    format_version = connection.execute(
        sa.select(t.lake_metadata.c.value).where(t.lake_metadata.c.key == "version")
    ).scalar_one_or_none()
    if format_version is None:
        return None
    if t.own_metadata.name not in present:
        raise InvalidError(
            "this DuckLake catalog was written by another program; Tailrace must be the only "
            "writer of a lake: create a new one and copy the tables"
        )
    own = connection.execute(
        sa.select(t.own_metadata.c.value).where(t.own_metadata.c.key == "version")
    ).scalar_one()
    return str(format_version), int(own)


def _check(format_version: str, own_version: int) -> None:
    if format_version != FORMAT_VERSION:
        raise InvalidError(
            f"this lake has DuckLake format {format_version}; "
            f"this version of Tailrace reads and writes {FORMAT_VERSION}"
        )
    if own_version > len(MIGRATIONS):
        raise InvalidError("this lake was written by a newer Tailrace: upgrade the package")


def _migrate(
    connection: sa.Connection,
    *,
    data_path: str | None,
    beside: str | None,
    now: datetime,
    creator: str,
) -> None:
    # Looked at again under the lock: another process may have been first.
    found = _versions(connection)
    if found is not None:
        _check(*found)
    for number in range(found[1] if found else 0, len(MIGRATIONS)):
        MIGRATIONS[number](connection)
    system_views.create_all(connection)
    if found is None:
        place = data_path or beside
        if place is None:
            raise InvalidError(
                "a new lake on PostgreSQL needs a place for its objects", fix=Fix(Action.GIVE_DATA)
            )
        _first_snapshot(connection, data_path=place, now=now, creator=creator)
        if data_path is None:
            connection.execute(sa.insert(t.own_metadata).values(key="data_is_beside", value="1"))
    connection.execute(sa.delete(t.own_metadata).where(t.own_metadata.c.key == "version"))
    connection.execute(sa.insert(t.own_metadata).values(key="version", value=str(len(MIGRATIONS))))


def _first_snapshot(
    connection: sa.Connection, *, data_path: str, now: datetime, creator: str
) -> None:
    facts = {
        "version": FORMAT_VERSION,
        "created_by": creator,
        "data_path": data_path,
        "encrypted": "false",
        # We are the only writer, and write rows to Parquet only.
        "data_inlining_row_limit": "0",
    }
    connection.execute(
        sa.insert(t.lake_metadata), [{"key": k, "value": v} for k, v in facts.items()]
    )
    connection.execute(
        sa.insert(t.snapshot).values(
            snapshot_id=0, snapshot_time=now, schema_version=0, next_catalog_id=1, next_file_id=0
        )
    )
    connection.execute(
        sa.insert(t.snapshot_changes).values(snapshot_id=0, changes_made='created_schema:"main"')
    )
    connection.execute(
        sa.insert(t.schema).values(
            schema_id=0,
            schema_uuid=str(uuid4()),
            begin_snapshot=0,
            schema_name="main",
            path="main/",
            path_is_relative=True,
        )
    )
