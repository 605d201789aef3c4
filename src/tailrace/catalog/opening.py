"""Opening the catalog of a lake: its database, which is created or migrated, and its clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.address import absolute, is_directory, normalize_data_path
from tailrace.catalog import configuration
from tailrace.catalog.clock import DatabaseClock
from tailrace.catalog.database import Database
from tailrace.catalog.migrate import open_catalog
from tailrace.catalog.part import Part
from tailrace.clock import Clock, SystemClock
from tailrace.errors import InvalidError
from tailrace.settings import Settings
from tailrace.version import __version__

CATALOG_FILE = "catalog.sqlite"


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
