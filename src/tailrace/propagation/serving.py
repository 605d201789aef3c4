"""`lake.serving()`: a node in the background, with metrics for Prometheus."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from tailrace.arguments import Between, checked
from tailrace.closing import Closing
from tailrace.errors import Action, Fix, InvalidError, UnavailableError
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Job
from tailrace.propagation.service import Service
from tailrace.settings import MOST_WORKERS
from tailrace.store.runtime import Runtime
from tailrace.store.tasks import TaskState
from tailrace.store.transaction import Heartbeat

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


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


class Metrics:
    """What Prometheus scrapes."""

    def __init__(self, host: str, port: int) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise InvalidError("metrics need an extra: pip install 'tailrace[server]'") from error
        registry = self.registry = prometheus.CollectorRegistry()
        by = ["kind", "outcome"]
        self._iterations = prometheus.Counter(
            "tailrace_iterations", "Iterations that ended", by, registry=registry
        )
        self._seconds = prometheus.Histogram(
            "tailrace_iteration_seconds", "How long they took", ["kind"], registry=registry
        )
        self._rows = prometheus.Counter(
            "tailrace_rows", "Rows read and written", ["kind", "direction"], registry=registry
        )
        try:
            self._server, self._thread = prometheus.start_http_server(port, host, registry)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host}:{port}: {error.strerror}", fix=Fix(Action.CHOOSE_PORT)
            ) from None
        self.port = int(self._server.server_port)

    def watch(self, service: Service) -> None:
        """Add what the scheduler and the runner count."""
        _register(self.registry, service)

    def observe(self, job: Job, done: Iteration) -> None:
        """Count an iteration."""
        outcome = "completed" if done.error is None else "failed"
        self._iterations.labels(job.kind, outcome).inc()
        self._seconds.labels(job.kind).observe(done.seconds)
        self._rows.labels(job.kind, "read").inc(done.rows_read)
        self._rows.labels(job.kind, "written").inc(done.rows_written)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _of_tasks(service: Service) -> Iterator[Metric]:
    """What the catalog says of the lake's tasks, and what this node has done of them."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    with suppress(UnavailableError):  # the catalog is away: the others are told all the same
        counts = service.maintenance.states()
        states = GaugeMetricFamily("tailrace_tasks", "Tasks by state", labels=["state"])
        for state in (TaskState.PENDING, TaskState.RUNNING, TaskState.FAILED):
            states.add_metric([state], counts[state].tasks if state in counts else 0)
        yield states
        oldest = counts.get(TaskState.PENDING)
        yield GaugeMetricFamily(
            "tailrace_oldest_task_seconds",
            "Since when the oldest task waits",
            value=0.0 if oldest is None else oldest.age,
        )
    done = service.maintenance.counts
    ended = CounterMetricFamily(
        "tailrace_ended_tasks", "Tasks that this node has run", labels=["type", "outcome"]
    )
    for (type_, outcome), count in list(done.ended.items()):
        ended.add_metric([type_, outcome], count)
    yield ended
    for name, what in (("rows", done.rows), ("bytes", done.bytes)):
        rewritten = CounterMetricFamily(
            f"tailrace_rewritten_{name}", f"What maintenance has rewritten: {name}", labels=["type"]
        )
        for type_, count in list(what.items()):
            rewritten.add_metric([type_], count)
        yield rewritten


def _register(registry: CollectorRegistry, service: Service) -> None:
    from prometheus_client.metrics_core import GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[Metric]:
            scheduler = service.scheduler
            works = GaugeMetricFamily("tailrace_work", "Work by what became of it", labels=["what"])
            now = {"waiting": scheduler.waiting, "running": scheduler.running}
            for what, count in {**scheduler.counts, **now}.items():
                works.add_metric([what.replace(" ", "_")], count)
            yield works
            jobs = GaugeMetricFamily("tailrace_jobs", "Jobs by state", labels=["state"])
            for state, count in service.runner.states().items():
                jobs.add_metric([state], count)
            yield jobs
            yield from _of_tasks(service)
            is_well = service.health.fault is None
            yield GaugeMetricFamily(
                "tailrace_node_healthy", "1, or 0 while this node stands back", value=int(is_well)
            )

    registry.register(Collector())
