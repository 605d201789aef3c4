"""Maintenance of what jobs have made, in the background of a node: between their iterations.

Always true: one job's maintenance runs once at a time on a node, and no iteration waits for it.
What it does is the consumer's business; so is what happens if two nodes do the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tailrace.log import get_logger
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.job import Job
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Heartbeat, Transaction

log = get_logger("tailrace.maintenance")


class Maintenance:
    """Knows which jobs have moved, and maintains what they have made."""

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
