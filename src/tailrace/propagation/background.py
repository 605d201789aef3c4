"""What a node does in the background, beside its iterations: upkeep of jobs, and of the catalog.

Always true: one job's maintenance runs once at a time on a node, and no iteration waits for it.
What it does is the consumer's business; so is what happens if two nodes do the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from tailrace.catalog import configuration
from tailrace.catalog.database import in_batches
from tailrace.log import get_logger
from tailrace.propagation import history, joblog, node
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.job import Job
from tailrace.store.purge import Purge
from tailrace.store.purge import purge as purge_store
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Heartbeat, Transaction

log = get_logger("tailrace.maintenance")
purge_log = get_logger("tailrace.purge")


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
        with self._runtime.database.read() as connection:
            days = history.old_days(connection, now - kept.history_retention)
        for day in days:
            with self._runtime.database.lock() as connection:
                history.add_up(connection, day)
        self.last = now
        return True

    def _is_due(self, last: datetime) -> bool:
        return self._runtime.clock.now() - last >= self._runtime.settings.upkeep_interval


class Maintenance:
    """Knows which jobs have moved, and maintains what they have made, between their iterations."""

    def __init__(self, runtime: Runtime, heartbeat: Heartbeat) -> None:
        self._runtime, self._heartbeat = runtime, heartbeat
        self._moved: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, job: Job) -> None:
        """Note a job that has finished an iteration, or is seen for the first time."""
        consumer = find_consumer(job.kind)
        if consumer is not None and consumer.needs_maintenance:
            with self._lock:
                self._moved[job.id] = job

    def begin(self) -> None:
        """Start in the background if there is something to do, unless it still runs."""
        if not self._moved or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self.run, name="tailrace-maintenance", daemon=True)
        self._thread.start()

    def run(self, deadline: float | None = None) -> None:
        """Maintain all jobs that have moved; what is left at the deadline waits for later."""

        def stopped() -> bool:
            late = deadline is not None and time.monotonic() >= deadline
            return late or self._stop.is_set()

        while not stopped():
            with self._lock:
                if not self._moved:
                    return
                _, job = self._moved.popitem()
            self._maintain(job, stopped)

    def _maintain(self, job: Job, stopped: Callable[[], bool]) -> None:
        consumer = find_consumer(job.kind)
        assert consumer is not None
        runtime = self._runtime.of_tenant(job.tenant)
        try:
            begin = lambda: Transaction(runtime, self._heartbeat)  # noqa: E731
            consumer.maintain(runtime, begin, job.id, stopped)
        except Exception as error:  # noqa: BLE001  (a consumer may raise anything; the job goes on)
            log.warning("maintenance failed", job=job.full_name, error=repr(error)[:500])

    def close(self) -> None:
        """Start nothing more, and wait for what runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def purge(runtime: Runtime, *, stop: threading.Event | None = None) -> Purge:
    """Remove the history that neither the retention nor a job needs."""
    done = purge_store(runtime, stop=stop)
    if done.did_something:
        purge_log.info(
            "purge",
            horizon=done.horizon,
            held_by=done.held_by,
            snapshots=done.snapshots,
            files=done.files,
            bytes=done.bytes,
            objects=done.objects,
        )
    return done


class Purger:
    """Purges in the background of a node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin a purge, unless the last one still runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="tailrace-purge", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            purge(self._runtime, stop=self._stop)
        except Exception as error:  # noqa: BLE001  (the catalog or the storage is away: next time)
            purge_log.warning("purge failed", error=repr(error)[:500])

    def close(self) -> None:
        """Stop, and wait for the end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
