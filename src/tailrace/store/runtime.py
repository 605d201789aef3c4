"""The parts that the store works with, held together and passed along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.catalog.database import Database
from tailrace.clock import Clock
from tailrace.objects import Storage
from tailrace.settings import Settings
from tailrace.store.deletes import DeleteFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One open lake, as the modules of the store see it."""

    database: Database
    storage: Storage
    deletes: DeleteFiles
    settings: Settings
    clock: Clock
    spark: Callable[[], SparkSession]  # starts Spark at its first call
    # Called with a name at each step of a write, commit and sweep: where tests kill the process.
    step: Callable[[str], None]
