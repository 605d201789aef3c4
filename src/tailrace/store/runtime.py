"""The parts that the store works with, held together and passed along; the layers above among them.

Always true: the store knows no more of those layers than the calls of a `Layer`. Each runs in a
transaction of the store's, so that what it writes is committed with the rest or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from tailrace.catalog.database import Database
    from tailrace.clock import Clock
    from tailrace.objects import Storage
    from tailrace.settings import Settings
    from tailrace.store.deletes import DeleteFiles
    from tailrace.store.mirror import Mirror
    from tailrace.store.open_file import KeptFiles
    from tailrace.store.spark_session import SparkProvider


@dataclass(frozen=True, kw_only=True)
class Need:
    """Somebody still reads the lake as it was at a snapshot."""

    snapshot: int
    who: str


@dataclass(frozen=True, kw_only=True)
class UnusedObject:
    """An object that nothing names any more."""

    id: int  # below 0: those above are ids of data files
    path: str
    size: int


class Layer:
    """A layer above the store: it overrides the calls that concern it."""

    def dropping(self, runtime: Runtime, connection: sa.Connection, tables: Sequence[int]) -> None:
        """A commit drops these tables; an error refuses it. Called last, within the commit."""

    def objects_in_use(self, _connection: sa.Connection, _paths: Collection[str]) -> Iterable[str]:
        """Those of some objects that the layer names in the catalog: a sweep keeps them."""
        return ()

    def prepare_purge(self, runtime: Runtime, limit: int) -> None:
        """A purge begins, which may move the horizon up to `limit`. Called outside of the lock."""

    def needs(self, _runtime: Runtime, _connection: sa.Connection, _limit: int) -> Iterable[Need]:
        """What is still needed of the snapshots below `limit`."""
        return ()

    def purging(
        self, _runtime: Runtime, _connection: sa.Connection, _horizon: int
    ) -> Iterable[UnusedObject]:
        """The horizon moves in this commit; the snapshots below it are still there.

        Returns the objects that no snapshot shows from then on, and that are no longer named.
        """
        return ()

    def forget_table(self, connection: sa.Connection, table_id: int) -> None:
        """The last rows of a table that was dropped are purged: so go the layer's about it."""


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
