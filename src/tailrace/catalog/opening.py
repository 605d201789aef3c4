"""Opens the catalog of a lake, and creates it or brings an older one up to date; also its clock.

Owned here: the versions. `ducklake_metadata.version` is the format's, which we neither read nor
write if it is another than 1.0; `tailrace_metadata.version` is ours, and only goes forward. What a
version adds, the layers say (`part`): from one version to the next, the lower layers come first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from tailrace.address import CATALOG_FILE, absolute, is_directory, normalize_data_path
from tailrace.catalog import configuration, ducklake
from tailrace.catalog.configuration import own_metadata
from tailrace.catalog.database import Database
from tailrace.catalog.ducklake import FORMAT_VERSION, lake_metadata
from tailrace.catalog.part import Part, create_views
from tailrace.clock import Clock, SystemClock
from tailrace.errors import Action, Fix, InvalidError, UnavailableError
from tailrace.settings import Settings
from tailrace.version import __version__

_LOOK_AGAIN = 60.0  # seconds


class DatabaseClock:
    """The clock that a lake on PostgreSQL measures age with: the database's.

    Machines disagree about the time, and one whose clock is days ahead must not take everybody's
    history for old. Between two looks at the database's clock, this machine's only counts seconds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The time now, in UTC."""
        seen = self._seen
        if seen is None or time.monotonic() - seen[1] > _LOOK_AGAIN:
            seen = self._look(seen)
        moment, counted = seen
        return moment + timedelta(seconds=time.monotonic() - counted)

    def _look(self, before: tuple[datetime, float] | None) -> tuple[datetime, float]:
        try:
            with self._database.read() as connection:
                moment = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        except UnavailableError:
            if before is None:
                raise
            return before  # counting goes on
        self._seen = moment, time.monotonic()
        return self._seen


_IS_DATA_PATH = sa.and_(lake_metadata.c.key == "data_path", lake_metadata.c.scope.is_(None))


def newest_version(layers: Sequence[Part]) -> int:
    """The version of the catalog that this process reads and writes."""
    return max(part.version for part in (ducklake.PART, configuration.PART, *layers))


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
    parts = (ducklake.PART, configuration.PART, *layers)
    newest = newest_version(layers)
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
    create_views(connection, parts)
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


def open_database(
    lake: str | Path,
    data: str | Path | None,
    *,
    parts: Sequence[Part],
    settings: Settings,
    clock: Clock | None,
) -> tuple[Database, Clock, str]:
    """Open the catalog of a lake, or create it; also returns where the lake's objects lie.

    `parts` are what the layers keep in it.
    """
    place = None if data is None else normalize_data_path(data)
    database, beside = _open_database(lake, settings)
    clock = clock or (SystemClock() if database.is_sqlite else DatabaseClock(database))
    try:
        stored = open_catalog(
            database,
            parts,
            data_path=place,
            beside=beside,
            now=clock.now(),
            creator=f"Tailrace {__version__}",
        )
        with database.read() as connection:
            database.commit_timeout = configuration.read(connection).commit_timeout
        database.version = newest_version(parts)
    except BaseException:
        database.close()
        raise
    return database, clock, stored


def _open_database(lake: str | Path, settings: Settings) -> tuple[Database, str | None]:
    """The database of a lake, and where its objects lie if it is a directory."""
    if not is_directory(lake):
        return Database(str(lake), lock_timeout=settings.lock_timeout), None
    directory = absolute(lake)
    try:
        if directory.exists() and not directory.is_dir():
            raise InvalidError(f"{directory} is a file: a lake is a directory")
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(f"no lake can be made at {directory}: {error.strerror}") from error
    database = Database(directory / CATALOG_FILE, lock_timeout=settings.lock_timeout)
    return database, normalize_data_path(directory / "data")
