"""What a node does every hour: it stores what is known in memory only, and deletes what is old."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from tailrace.catalog import configuration
from tailrace.catalog.database import in_batches
from tailrace.propagation import history, joblog, node
from tailrace.store.runtime import Runtime


class Housekeeping:
    """See the module."""

    def __init__(
        self, runtime: Runtime, advanced: Callable[[], Mapping[int, tuple[int, int]]]
    ) -> None:
        """`advanced` gives, by job, stored watermarks and those that hold by now."""
        self._runtime, self._advanced = runtime, advanced
        self.last: datetime | None = None

    def run(self) -> bool:
        """Do it if an hour has passed since the last time; returns whether it had."""
        now, settings = self._runtime.clock.now(), self._runtime.settings
        if self.last is not None and now - self.last < settings.upkeep_interval:
            return False
        watermarks = {} if self.last is None else self._advanced()
        for some in in_batches(watermarks.items()):  # others want to commit in between
            with self._runtime.database.lock() as connection:
                joblog.advance(connection, dict(some))
        with self._runtime.database.lock() as connection:
            kept = configuration.read(connection)
            joblog.delete_dropped(connection, now - kept.drop_retention)
            node.delete_dead(connection, self._runtime.clock)
        with self._runtime.database.read() as connection:
            days = history.old_days(connection, now - kept.history_retention)
        for day in days:
            with self._runtime.database.lock() as connection:
                history.add_up(connection, day)
        self.last = now
        return True
