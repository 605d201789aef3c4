"""Opening a lake: its catalog, its storage, and what else a process has of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.catalog.opening import open_database
from tailrace.catalog.part import Part
from tailrace.clock import Clock
from tailrace.errors import InvalidError
from tailrace.objects import Storage
from tailrace.settings import Settings
from tailrace.store.deletes import DeleteFiles
from tailrace.store.mirror import Mirror
from tailrace.store.open_file import KeptFiles
from tailrace.store.runtime import Layer, TenantRuntime
from tailrace.store.spark_session import SparkProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    database, clock, stored = open_database(lake, data, parts=parts, settings=settings, clock=clock)
    try:
        storage = Storage(stored, storage_options)
        if storage.local is not None:
            _make_place(storage.local)
    except BaseException:
        database.close()
        raise
    return TenantRuntime(
        database=database,
        mirror=Mirror(database),
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


def _make_place(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(
            f"the lake's objects cannot lie in {directory}: {error.strerror}"
        ) from error
