"""The metrics of a node, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.errors import InvalidError, UnavailableError
from tailrace.fixes import Action, Fix
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Job
from tailrace.propagation.service import Service

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


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


def _register(registry: CollectorRegistry, service: Service) -> None:
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric

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
            is_well = service.health.fault is None
            yield GaugeMetricFamily(
                "tailrace_node_healthy", "1, or 0 while this node stands back", value=int(is_well)
            )

    registry.register(Collector())
