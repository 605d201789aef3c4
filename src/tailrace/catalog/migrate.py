"""Creates a lake's catalog and brings an older one up to date.

Owned here: the versions. `ducklake_metadata.version` is the format's, which we neither read nor
write if it is another than 1.0; `tailrace_metadata.version` is ours, and only goes forward. What a
version adds, the layers say (`part`): from one version to the next, the lower layers come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from tailrace.catalog import ducklake, metadata, system_views
from tailrace.catalog.database import Database
from tailrace.catalog.ducklake import FORMAT_VERSION, lake_metadata
from tailrace.catalog.metadata import own_metadata
from tailrace.catalog.part import Part
from tailrace.errors import InvalidError
from tailrace.fixes import Action, Fix

_IS_DATA_PATH = sa.and_(lake_metadata.c.key == "data_path", lake_metadata.c.scope.is_(None))


def open_catalog(
    database: Database,
    layers: Sequence[Part],
    *,
    data_path: str | None,
    beside: str | None,
    now: datetime,
    creator: str,
) -> str:
    """Create or migrate the catalog; returns the path under which the lake's objects lie.

    `data_path` is what the caller asks for. Without one, a lake in a directory keeps its objects
    in `beside`: wherever the directory is now, because it may have been moved or copied.
    """
    parts = (ducklake.PART, metadata.PART, *layers)
    newest = max(part.version for part in parts)
    with database.read() as connection:
        versions = _versions(connection)
    if versions is None or versions[1] < newest:
        with database.lock() as connection:
            _migrate(
                connection,
                parts,
                newest,
                data_path=data_path,
                beside=beside,
                now=now,
                creator=creator,
            )
    with database.read() as connection:
        versions = _versions(connection)
        assert versions is not None
        _check(*versions, newest)
        stored = str(
            connection.execute(sa.select(lake_metadata.c.value).where(_IS_DATA_PATH)).scalar_one()
        )
        is_beside = connection.execute(
            sa.select(own_metadata.c.key).where(own_metadata.c.key == "data_is_beside")
        ).first()
    if is_beside and beside is not None:
        if stored != beside:
            with database.write() as connection:  # for other readers
                connection.execute(
                    sa.update(lake_metadata).where(_IS_DATA_PATH).values(value=beside)
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
    if lake_metadata.name not in present:
        return None
    format_version = connection.execute(
        sa.select(lake_metadata.c.value).where(lake_metadata.c.key == "version")
    ).scalar_one_or_none()
    if format_version is None:
        return None
    if own_metadata.name not in present:
        raise InvalidError(
            "this DuckLake catalog was written by another program; Tailrace must be the only "
            "writer of a lake: create a new one and copy the tables"
        )
    own = connection.execute(
        sa.select(own_metadata.c.value).where(own_metadata.c.key == "version")
    ).scalar_one()
    return str(format_version), int(own)


def _check(format_version: str, own_version: int, newest: int) -> None:
    if format_version != FORMAT_VERSION:
        raise InvalidError(
            f"this lake has DuckLake format {format_version}; "
            f"this version of Tailrace reads and writes {FORMAT_VERSION}"
        )
    if own_version > newest:
        raise InvalidError("this lake was written by a newer Tailrace: upgrade the package")


def _migrate(
    connection: sa.Connection,
    parts: Sequence[Part],
    newest: int,
    *,
    data_path: str | None,
    beside: str | None,
    now: datetime,
    creator: str,
) -> None:
    # Looked at again under the lock: another process may have been first.
    versions = _versions(connection)
    if versions is not None:
        _check(*versions, newest)
    for version in range(versions[1] + 1 if versions else 1, newest + 1):
        for part in parts:
            part.bring_to(version, connection)
    system_views.create_all(connection, parts)
    if versions is None:
        place = data_path or beside
        if place is None:
            raise InvalidError(
                "a new lake on PostgreSQL needs a place for its objects", fix=Fix(Action.GIVE_DATA)
            )
        ducklake.enter_first_rows(connection, data_path=place, now=now, creator=creator)
        if data_path is None:
            connection.execute(sa.insert(own_metadata).values(key="data_is_beside", value="1"))
    connection.execute(sa.delete(own_metadata).where(own_metadata.c.key == "version"))
    connection.execute(sa.insert(own_metadata).values(key="version", value=str(newest)))
