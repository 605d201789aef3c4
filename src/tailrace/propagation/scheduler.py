"""Where work waits and runs: a queue by priority and time, and a bounded number of threads.

Always true: tenants take turns, so that one's thousand jobs do not starve another's one; of a
tenant's work the highest priority goes first, then the oldest. A flight that took too long is
given up: its thread no longer counts, whatever it still does.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.log import get_logger
from tailrace.propagation.iteration import Flight
from tailrace.propagation.job import Work

# Seconds between attempts to interrupt the same flight.
_STOP_AGAIN = 0.2

log = get_logger("tailrace.scheduler")


@dataclass(eq=False)
class _Task:
    flight: Flight
    number: int  # in the order of submission
    deadline: float | None = None
    thread: threading.Thread | None = None
    given_up: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def order(self) -> tuple[int, int]:
        return -self.flight.work.priority, self.number


class Scheduler:
    """Runs work on threads of its own.

    `run` does the work; `done` is told when a flight is over, from whatever thread; `stop`
    interrupts one; `time_out` settles the account of one that is given up.
    """

    def __init__(
        self,
        *,
        run: Callable[[Flight], None],
        done: Callable[[Flight], None],
        stop: Callable[[Flight], None],
        time_out: Callable[[Flight], None],
        workers: int,
        tenant_workers: int,
        timeout: float,
    ) -> None:
        self._run, self._done, self._stop, self._time_out = run, done, stop, time_out
        self._workers, self._tenant_workers, self._timeout = workers, tenant_workers, timeout
        self._lock = threading.RLock()
        self._waiting: dict[str, list[_Task]] = {}  # by tenant
        self._running: list[_Task] = []
        self._closed = False
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()

    # --- in ---------------------------------------------------------------------------------

    def submit(self, work: Work) -> Flight | None:
        """Queue a work; None if this scheduler is closed."""
        flight = Flight(work)
        with self._lock:
            if self._closed:
                self.counts["rejected"] += 1
                return None
            self.counts["submitted"] += 1
            task = _Task(flight, next(self._numbers))
            self._waiting.setdefault(work.tenant, []).append(task)
            self._start_some()
        return flight

    def resize(self, workers: int) -> None:
        """Change how many run at once; what runs already goes on."""
        with self._lock:
            self._workers = workers
            self._start_some()

    def _start_some(self) -> None:
        """Start what may run; with the lock held."""
        while len(self._running) < self._workers:
            task = self._next()
            if task is None:
                return
            limit = task.flight.work.timeout or self._timeout
            task.deadline = time.monotonic() + limit
            self._running.append(task)
            # A thread for each task: one that must be given up takes nothing with it.
            task.thread = threading.Thread(
                target=self._fly, args=(task,), name="tailrace-worker", daemon=True
            )
            task.thread.start()

    def _next(self) -> _Task | None:
        busy = Counter(task.flight.work.tenant for task in self._running)
        tenants = [
            (busy[tenant], min(task.order for task in tasks), tenant)
            for tenant, tasks in self._waiting.items()
            if busy[tenant] < self._tenant_workers
        ]
        if not tenants:
            return None
        tenant = min(tenants)[-1]
        tasks = self._waiting[tenant]
        first = min(tasks, key=lambda task: task.order)
        tasks.remove(first)
        if not tasks:
            del self._waiting[tenant]
        return first

    # --- running ----------------------------------------------------------------------------

    def _fly(self, task: _Task) -> None:
        outcome = "completed"
        try:
            self._run(task.flight)
        except BaseException as error:  # noqa: BLE001  (nobody else would hear of it)
            outcome = "failed"
            log.warning("work failed", jobs=task.flight.work.jobs, error=repr(error)[:500])
        finally:
            self._end(task, outcome)

    def _end(self, task: _Task, outcome: str) -> None:
        task.ended.set()
        # Told before it stops counting as running: whoever sees nothing running has been told.
        if not task.given_up:
            self._done(task.flight)
        with self._lock:
            if not task.given_up:
                self._running.remove(task)
                self.counts[outcome] += 1
                self._start_some()

    def expire(self) -> float | None:
        """Give up what has taken too long; returns the seconds until this is to be called again."""
        now = time.monotonic()
        with self._lock:
            late = [task for task in self._running if task.deadline and task.deadline <= now]
            for task in late:
                task.given_up = True
                self._running.remove(task)
                self.counts["timed out"] += 1
        for task in late:
            try:
                self._time_out(task.flight)
            except Exception as error:  # noqa: BLE001  (the catalog is away: its claims are healed)
                log.warning("time-out not entered", error=repr(error)[:500])
            self._done(task.flight)
        with self._lock:
            self._start_some()
            running = list(self._running)
        deadlines = [task.deadline - now for task in running if task.deadline]
        for task in running:
            if task.flight.current and task.flight.must_stop(task.flight.current):
                # Again: it may have started its next Spark job after the last time.
                self._stop(task.flight)
                deadlines.append(_STOP_AGAIN)
        return min(deadlines, default=None)

    def fence(self, epochs: dict[int, int]) -> None:
        """Stop what runs with an older epoch than its job has; siblings go on."""
        with self._lock:
            flights = [task.flight for task in self._running]
        for flight in flights:
            for job, claim in list(flight.claims.items()):
                if claim.job.epoch < epochs.get(job, -1):
                    flight.fenced.add(job)
                    if job in flight.current:
                        self._stop(flight)

    # --- state and end ----------------------------------------------------------------------

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    @property
    def waiting(self) -> int:
        with self._lock:
            return sum(len(tasks) for tasks in self._waiting.values())

    def close(self, timeout: float = 60.0) -> None:
        """Stop what runs, and wait for it; what has not begun does not begin."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            running = list(self._running)
            for task in running:
                task.flight.stopped.set()
        deadline = time.monotonic() + timeout
        for task in running:
            # Again and again: a consumer may start its next Spark job just now.
            while not task.ended.wait(_STOP_AGAIN) and time.monotonic() < deadline:
                self._stop(task.flight)
