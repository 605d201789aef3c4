"""Where work waits and runs: a queue by priority and time, and a bounded number of threads.

Always true: tenants take turns, so that one's thousand jobs do not starve another's one; of a
tenant's work the highest priority goes first, then what is nearly fresh, then the oldest. What
works off a backlog never has all workers, nor all of a tenant's, if there is more than one: what
is nearly fresh does not wait for it. A flight that took too long is
given up: its thread no longer counts as a worker, and is interrupted until it ends.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.log import get_logger
from tailrace.propagation.flight import Flight
from tailrace.propagation.job import Work

# Seconds between attempts to interrupt the same flight.
_STOP_AGAIN = 0.2

log = get_logger("tailrace.scheduler")


@dataclass(order=True)
class _Task:
    # The priority, highest first; backlogs last; then the number of its submission.
    order: tuple[int, bool, int]
    flight: Flight = field(compare=False)
    given_up: bool = field(default=False, compare=False)
    ended: threading.Event = field(default_factory=threading.Event, compare=False)


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
    ) -> None:
        self._run, self._done, self._stop, self._time_out = run, done, stop, time_out
        self._workers, self._tenant_workers = workers, tenant_workers
        self._lock = threading.RLock()
        # A heap for each tenant, and for what is nearly fresh and backlogs.
        self._waiting: dict[tuple[str, bool], list[_Task]] = {}
        self._running: list[_Task] = []
        self._given_up: list[_Task] = []
        self._closed = False
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()

    # --- in ---------------------------------------------------------------------------------

    def submit(self, *works: Work) -> list[Flight]:
        """Queue works, all before the first of them starts; nothing if this scheduler is closed."""
        flights = [Flight(work) for work in works]
        with self._lock:
            if self._closed:
                self.counts["rejected"] += len(works)
                return []
            self.counts["submitted"] += len(works)
            for flight in flights:
                work = flight.work
                task = _Task((-work.priority, work.is_backlog, next(self._numbers)), flight)
                lane = self._waiting.setdefault((work.tenant, work.is_backlog), [])
                heapq.heappush(lane, task)
            self._start_some()
        return flights

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
            self._running.append(task)
            # A thread for each task: one that must be given up takes nothing with it.
            threading.Thread(
                target=self._fly, args=(task,), name="tailrace-worker", daemon=True
            ).start()

    def _next(self) -> _Task | None:
        works = [task.flight.work for task in self._running]
        busy = Counter(work.tenant for work in works)
        backlogs = Counter(work.tenant for work in works if work.is_backlog)
        may_begin_backlog = backlogs.total() < _for_backlogs(self._workers)

        def may_begin(tenant: str, *, is_backlog: bool) -> bool:
            if busy[tenant] >= self._tenant_workers:
                return False
            if not is_backlog:
                return True
            return may_begin_backlog and backlogs[tenant] < _for_backlogs(self._tenant_workers)

        lanes = [
            (busy[tenant], tasks[0].order, (tenant, is_backlog))
            for (tenant, is_backlog), tasks in self._waiting.items()
            if may_begin(tenant, is_backlog=is_backlog)
        ]
        if not lanes:
            return None
        lane = min(lanes)[-1]
        first = heapq.heappop(self._waiting[lane])
        if not self._waiting[lane]:
            del self._waiting[lane]
        return first

    # --- running ----------------------------------------------------------------------------

    def _fly(self, task: _Task) -> None:
        try:
            self._run(task.flight)
        except BaseException as error:  # noqa: BLE001  (nobody else would hear of it)
            task.flight.broken = True
            log.warning("work failed", jobs=task.flight.work.jobs, error=repr(error)[:500])
        finally:
            self._end(task)

    def _end(self, task: _Task) -> None:
        task.ended.set()
        # Told before it stops counting as running: whoever sees nothing running has been told.
        if not task.given_up:
            self._done(task.flight)
        with self._lock:
            if task.given_up:
                self._given_up.remove(task)
                return
            self._running.remove(task)
            failed = task.flight.broken or task.flight.failures
            self.counts["failed" if failed else "completed"] += 1
            self._start_some()

    def expire(self) -> float | None:
        """Give up what has taken too long; returns the seconds until this is to be called again."""
        with self._lock:
            late = [task for task in self._running if task.flight.late()]
            for task in late:
                task.given_up = True
                self._running.remove(task)
                self._given_up.append(task)
                self.counts["timed out"] += 1
        for task in late:
            try:
                self._time_out(task.flight)
            except Exception as error:  # noqa: BLE001  (the catalog is away: its claims are healed)
                log.warning("time-out not entered", error=repr(error)[:500])
            self._done(task.flight)
        with self._lock:
            self._start_some()
            flights = [task.flight for task in self._running]
            stopping = [task.flight for task in self._given_up]
        stopping += [flight for flight in flights if flight.stragglers()]
        for flight in stopping:
            self._stop(flight)  # again: it may have started its next Spark job since
        now = time.monotonic()
        deadlines = [flight.deadline() for flight in flights]
        waits = [deadline - now for deadline in deadlines if deadline is not None]
        return min([*waits, *([_STOP_AGAIN] if stopping else [])], default=None)

    def give_up(self, settle: Callable[[Flight], None]) -> None:
        """Let go of everything: what runs cannot go on, and what waits would not, either.

        `settle` is called for what runs.
        """
        with self._lock:
            tasks, waiting = self._running, list(itertools.chain(*self._waiting.values()))
            self._running = []
            self._waiting.clear()
            for task in tasks:
                task.given_up = True
            self._given_up += tasks
            self.counts["given up"] += len(tasks)
        for task in tasks:
            try:
                settle(task.flight)
            except Exception as error:  # noqa: BLE001  (the catalog is away: its claims are healed)
                task.flight.broken = True
                log.warning("claims not released", error=repr(error)[:500])
        for task in (*tasks, *waiting):
            self._done(task.flight)

    def fence(self, epochs: dict[int, int]) -> None:
        """Stop what runs with an older epoch than its job has; siblings go on."""
        with self._lock:
            tasks = [*self._running, *itertools.chain(*self._waiting.values())]
        for task in tasks:
            flight = task.flight
            flight.epochs |= {job: epochs[job] for job in flight.work.jobs if job in epochs}
            if flight.stragglers():
                self._stop(flight)

    # --- state and end ----------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many run at this moment."""
        with self._lock:
            return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait for a worker."""
        with self._lock:
            return sum(len(tasks) for tasks in self._waiting.values())

    def close(self, *, stop: bool = True, timeout: float = 60.0) -> None:
        """Begin nothing more, and wait for what runs; unless told otherwise, stop it."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            tasks = [*self._running, *self._given_up]
        if stop:
            for task in tasks:
                task.flight.stopped.set()
        deadline = time.monotonic() + timeout
        for task in tasks:
            # Again and again: a consumer may start its next Spark job just now.
            while not task.ended.wait(_STOP_AGAIN) and time.monotonic() < deadline:
                if task.flight.stragglers():
                    self._stop(task.flight)


def _for_backlogs(workers: int) -> int:
    """How many of some workers may work off backlogs."""
    return max(1, workers - 1)
