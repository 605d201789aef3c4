"""What every node does once an hour by itself: it stores what only it knows, and deletes old rows.

All other work in the background is a task: see `maintenance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from tailrace.catalog import configuration
from tailrace.catalog.database import in_batches
from tailrace.propagation import history, joblog, node
from tailrace.store import tasks
from tailrace.store.runtime import Runtime


class Housekeeping:
    """Stores every hour what is known in memory only, and deletes what is old."""

    def __init__(
        self,
        runtime: Runtime,
        advanced: Callable[[], Mapping[int, tuple[int, int]]],
        *,
        last: datetime | None = None,
    ) -> None:
        """`advanced` gives, by job, stored watermarks and those that hold by now.

        `last`: when another service of this process did it. What that one knew is gone with it.
        """
        self._runtime, self._advanced = runtime, advanced
        self.last = None if last is None or self._is_due(last) else last

    def run(self) -> bool:
        """Do it if an hour has passed since the last time; returns whether it had."""
        now = self._runtime.clock.now()
        if self.last is not None and not self._is_due(self.last):
            return False
        watermarks = {} if self.last is None else self._advanced()
        for some in in_batches(watermarks.items()):  # others want to commit in between
            with self._runtime.database.lock() as connection:
                joblog.advance(connection, dict(some))
        with self._runtime.database.lock() as connection:
            kept = configuration.read(connection)
            joblog.delete_dropped(connection, now - kept.drop_retention)
            node.delete_dead(connection, self._runtime.clock)
            tasks.delete_old(connection, now - kept.history_retention)
        with self._runtime.database.read() as connection:
            days = history.old_days(connection, now - kept.history_retention)
        for day in days:
            with self._runtime.database.lock() as connection:
                history.add_up(connection, day)
        self.last = now
        return True

    def _is_due(self, last: datetime) -> bool:
        return self._runtime.clock.now() - last >= self._runtime.settings.upkeep_interval
