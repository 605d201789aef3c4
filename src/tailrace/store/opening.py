"""Opening a lake: the database of its catalog, which is created or migrated, and its storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.address import is_directory
from tailrace.catalog import configuration
from tailrace.catalog.clock import DatabaseClock
from tailrace.catalog.database import Database
from tailrace.catalog.migrate import open_catalog
from tailrace.catalog.part import Part
from tailrace.clock import Clock, SystemClock
from tailrace.errors import InvalidError
from tailrace.objects.storage import Storage, absolute, normalize_data_path
from tailrace.settings import Settings
from tailrace.store.deletes import DeleteFiles
from tailrace.store.layer import Layer
from tailrace.store.reader.kept import KeptFiles
from tailrace.store.runtime import TenantRuntime
from tailrace.store.spark_session import SparkProvider
from tailrace.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG_FILE = "catalog.sqlite"


def open_runtime(
    lake: str | Path,
    data: str | Path | None,
    *,
    parts: Sequence[Part],
    layers: tuple[Layer, ...],
    tenant: str,
    spark: SparkSession | None,
    storage_options: Mapping[str, Any] | None,
    settings: Settings,
    clock: Clock | None,
    step: Callable[[str], None],
) -> TenantRuntime:
    """Open a lake, or create it; see `tailrace.connect`.

    `parts` are what the layers keep in its catalog, `layers` those that the store asks.
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
        storage = Storage(stored, storage_options)
        if storage.local is not None:
            _make_place(storage.local)
    except BaseException:
        database.close()
        raise
    return TenantRuntime(
        database=database,
        storage=storage,
        deletes=DeleteFiles(storage),
        kept_files=KeptFiles.of(settings.kept_bytes),
        settings=settings,
        clock=clock,
        spark=SparkProvider(spark),
        step=step,
        tenant=tenant,
        layers=layers,
    )


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


def _make_place(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(
            f"the lake's objects cannot lie in {directory}: {error.strerror}"
        ) from error
