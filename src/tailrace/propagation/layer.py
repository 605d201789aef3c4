"""What the store asks of jobs: when tables are dropped, and before history is purged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from tailrace.propagation import versions
from tailrace.propagation.dropping import fail_followers
from tailrace.propagation.purging import JobNeeds
from tailrace.store.runtime import Layer, Need, Runtime, UnusedObject


class JobLayer(Layer):
    """The jobs of a lake, as the store meets them."""

    def job_needs(self, runtime: Runtime) -> JobNeeds:
        """What jobs need at the moment."""
        return JobNeeds(runtime)

    def dropping(self, runtime: Runtime, connection: sa.Connection, tables: Sequence[int]) -> None:
        fail_followers(connection, tables, runtime.clock.now())

    def prepare_purge(self, runtime: Runtime, limit: int) -> None:
        self.job_needs(runtime).prepare(limit)

    def needs(self, runtime: Runtime, connection: sa.Connection, limit: int) -> Iterable[Need]:
        return self.job_needs(runtime).below(connection, limit)

    def purging(
        self, runtime: Runtime, connection: sa.Connection, horizon: int
    ) -> Iterable[UnusedObject]:
        self.job_needs(runtime).purging(connection, horizon)
        versions.anchor(connection, horizon)
        return ()

    def forget_table(self, connection: sa.Connection, table_id: int) -> None:
        versions.forget_table(connection, table_id)
