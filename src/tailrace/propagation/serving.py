"""`lake.serving()`: a node in the background, with metrics."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any

from tailrace.arguments import Between, checked
from tailrace.closing import Closing
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Job
from tailrace.propagation.metrics import Metrics
from tailrace.propagation.service import Service
from tailrace.settings import MOST_WORKERS
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Heartbeat


@checked
class Serving(Closing):
    """A node in the background, until it is closed; also a context manager."""

    def __init__(
        self, runtime: Runtime, heartbeat: Heartbeat, *, host: str, port: int | None
    ) -> None:
        self._metrics = None if port is None else Metrics(host, port)
        try:
            self.service = Service(runtime, heartbeat, observe=self._observe)
        except BaseException:
            self._close_metrics()
            raise
        if self._metrics is not None:
            self._metrics.watch(self.service)
        self.service.start()

    @property
    def metrics_port(self) -> int | None:
        """Where the metrics are."""
        return None if self._metrics is None else self._metrics.port

    @property
    def fault(self) -> str | None:
        """Why this node stands back, and leaves the jobs to others; None if it works."""
        return self.service.health.fault

    @property
    def closed(self) -> bool:
        return self.service.closed

    def resize(self, workers: Annotated[int, Between(1, MOST_WORKERS)]) -> None:
        """Change how many iterations run at once."""
        self.service.scheduler.resize(workers)

    def _observe(self, job: Job, done: Iteration) -> None:
        if self._metrics is not None:
            self._metrics.observe(job, done)

    def close(self) -> None:
        """Stop what runs, wait for it, and leave; may be called twice."""
        self.service.close()
        self._close_metrics()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None


def wait_for_signal(ended: Callable[[], bool]) -> None:
    """Return at SIGINT or SIGTERM, or when it has ended; a second signal has its usual effect."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        for number, handler in old.items():
            signal.signal(number, handler)

    old: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError):  # only the main thread may
            old[number] = signal.signal(number, on_signal)
    try:
        while not stop.wait(0.2) and not ended():
            pass
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
