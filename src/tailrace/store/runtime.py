"""The parts that the store works with, held together and passed along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.catalog.database import Database
    from tailrace.clock import Clock
    from tailrace.objects import Storage
    from tailrace.settings import Settings
    from tailrace.store.deletes import DeleteFiles
    from tailrace.store.layer import Layer
    from tailrace.store.mirror import Mirror
    from tailrace.store.reader.kept import KeptFiles
    from tailrace.store.spark_session import SparkProvider


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One open lake, as a process has it."""

    database: Database
    mirror: Mirror
    storage: Storage
    deletes: DeleteFiles
    kept_files: KeptFiles
    settings: Settings
    clock: Clock
    spark: SparkProvider
    # Called with a name at each step of a write, commit and sweep: where tests kill the process.
    step: Callable[[str], None]
    # Those above the store, from low to high: commits, purges and sweeps ask them.
    layers: tuple[Layer, ...] = ()

    def of_tenant(self, tenant: str) -> TenantRuntime:
        """The same lake, for one tenant."""
        parts = {field.name: getattr(self, field.name) for field in fields(Runtime)}
        return TenantRuntime(**parts, tenant=tenant)


@dataclass(frozen=True, kw_only=True)
class TenantCatalog:
    """The catalog of a lake as one tenant sees it: enough to list what there is."""

    database: Database
    clock: Clock
    tenant: str


@dataclass(frozen=True, kw_only=True)
class TenantRuntime(Runtime, TenantCatalog):
    """An open lake as one tenant sees and touches it; what needs no tenant takes a `Runtime`."""
