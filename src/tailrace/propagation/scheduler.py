"""Where work waits and runs: a queue by priority and time, and a bounded number of threads.

Always true: tenants take turns, so that a thousand jobs of one do not starve a single job of
another. Of a tenant's work, the highest priority goes first, then what is nearly fresh, then the
oldest. If there is more than one worker, backlogs never occupy all of them, nor all of a tenant's,
so that what is nearly fresh need not wait for them. An execution that takes too long is given up:
its thread no longer counts as a worker, and is interrupted until it ends.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tailrace.log import get_logger
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Claim, RunKind, Work

# Seconds between attempts to interrupt the same execution.
_STOP_AGAIN = 0.2

log = get_logger("tailrace.scheduler")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The job of a bundle whose consumer is running now."""

    job: int
    tag: str  # of the bundle's Spark jobs
    started_at: datetime
    started: float  # by the monotonic clock
    deadline: float


@dataclass(eq=False)
class Execution:
    """A work that is queued or running, for those who may have to stop it.

    Written by the threads that run it, read by the scheduler's: each field changes in one step, and
    a reader that comes a moment too early comes again.
    """

    work: Work
    stopped: threading.Event = field(default_factory=threading.Event)  # all of it
    claims: dict[int, Claim] = field(default_factory=dict)  # by job, until its outcome is entered
    # The last epoch of each job in the job log: a claim with an older one must not go on.
    epochs: dict[int, int] = field(default_factory=dict)
    turns: dict[tuple[int, ...], Turn] = field(default_factory=dict)  # by the jobs of a bundle
    names: dict[int, str] = field(default_factory=dict)  # of the source tables
    # A snapshot that its first transaction may read: the newest when its jobs had been claimed.
    base: int | None = None
    failures: int = 0  # jobs that failed
    broken: bool = False  # it failed, and that could not be entered with its jobs
    given_up: bool = False  # it no longer counts as running, though its thread may go on
    ended: threading.Event = field(default_factory=threading.Event)

    def must_stop(self, jobs: tuple[int, ...]) -> bool:
        """Whether some jobs of it must not go on."""
        if self.stopped.is_set():
            return True
        claims = [self.claims.get(job) for job in jobs]
        return any(c is not None and c.job.epoch < self.epochs.get(c.job.id, -1) for c in claims)

    def stragglers(self) -> list[str]:
        """The tags of what runs though it must stop."""
        return [turn.tag for jobs, turn in list(self.turns.items()) if self.must_stop(jobs)]

    def late(self) -> list[Turn]:
        """The turns that have taken too long."""
        now = time.monotonic()
        return [turn for turn in list(self.turns.values()) if turn.deadline <= now]

    def deadline(self) -> float | None:
        """When the next turn will have taken too long."""
        return min((turn.deadline for turn in list(self.turns.values())), default=None)

    def record(
        self, claim: Claim, kind: RunKind, turn: Turn | None, ended_at: datetime
    ) -> Iteration:
        """The entry for the history, as far as it is the same for success and failure."""
        return Iteration(
            job_id=claim.job.id,
            tenant=claim.job.tenant,
            sources=tuple(self.names.get(s, f"table {s}") for s in claim.job.sources),
            from_snapshot=claim.since,
            to_snapshot=claim.to,
            kind=str(kind),
            node_id=str(claim.job.node),
            started_at=ended_at if turn is None else turn.started_at,
            ended_at=ended_at,
            seconds=0.0 if turn is None else time.monotonic() - turn.started,
        )


# The priority, highest first; backlogs last; then the number of its submission.
Order = tuple[int, bool, int]


class Scheduler:
    """Runs work on threads of its own.

    `run` does the work; `done` is called when an execution is over, on any thread; `stop`
    interrupts one; `time_out` enters the failure of one that is given up.
    """

    def __init__(
        self,
        *,
        run: Callable[[Execution], None],
        done: Callable[[Execution], None],
        stop: Callable[[Execution], None],
        time_out: Callable[[Execution], None],
        workers: int,
        tenant_workers: int,
    ) -> None:
        self._run, self._done, self._stop, self._time_out = run, done, stop, time_out
        self._workers, self._tenant_workers = workers, tenant_workers
        self._lock = threading.RLock()
        # A heap for each tenant and lane: what is nearly fresh, and backlogs.
        self._waiting: dict[tuple[str, bool], list[tuple[Order, Execution]]] = {}
        self._running: list[Execution] = []
        self._given_up: list[Execution] = []
        self._closed = False
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()

    # --- in ---------------------------------------------------------------------------------

    def submit(self, *works: Work) -> list[Execution]:
        """Queue works, all of them before the first starts; none if this scheduler is closed."""
        executions = [Execution(work) for work in works]
        with self._lock:
            if self._closed:
                self.counts["rejected"] += len(works)
                return []
            self.counts["submitted"] += len(works)
            for execution in executions:
                work = execution.work
                order = (-work.priority, work.is_backlog, next(self._numbers))
                lane = self._waiting.setdefault((work.tenant, work.is_backlog), [])
                heapq.heappush(lane, (order, execution))
            self._start_some()
        return executions

    def resize(self, workers: int) -> None:
        """Change how many run at once; what runs already goes on."""
        with self._lock:
            self._workers = workers
            self._start_some()

    def _start_some(self) -> None:
        """Start what may run; with the lock held."""
        while len(self._running) < self._workers:
            execution = self._next()
            if execution is None:
                return
            self._running.append(execution)
            # A thread for each: giving one up loses nothing else.
            threading.Thread(
                target=self._execute, args=(execution,), name="tailrace-worker", daemon=True
            ).start()

    def _next(self) -> Execution | None:
        works = [execution.work for execution in self._running]
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
            (busy[tenant], queue[0][0], (tenant, is_backlog))
            for (tenant, is_backlog), queue in self._waiting.items()
            if may_begin(tenant, is_backlog=is_backlog)
        ]
        if not lanes:
            return None
        lane = min(lanes)[-1]
        _, first = heapq.heappop(self._waiting[lane])
        if not self._waiting[lane]:
            del self._waiting[lane]
        return first

    # --- running ----------------------------------------------------------------------------

    def _execute(self, execution: Execution) -> None:
        try:
            self._run(execution)
        except BaseException as error:  # noqa: BLE001  (nobody else would hear of it)
            execution.broken = True
            log.warning("work failed", jobs=execution.work.jobs, error=repr(error)[:500])
        finally:
            self._end(execution)

    def _end(self, execution: Execution) -> None:
        execution.ended.set()
        # Before it stops counting as running, so that whoever sees nothing running knows the end.
        if not execution.given_up:
            self._done(execution)
        with self._lock:
            if execution.given_up:
                self._given_up.remove(execution)
                return
            self._running.remove(execution)
            failed = execution.broken or execution.failures
            self.counts["failed" if failed else "completed"] += 1
            self._start_some()

    def expire(self) -> float | None:
        """Give up what has taken too long; returns the seconds until the next call is due."""
        with self._lock:
            late = [execution for execution in self._running if execution.late()]
            for execution in late:
                execution.given_up = True
                self._running.remove(execution)
                self._given_up.append(execution)
                self.counts["timed out"] += 1
        for execution in late:
            try:
                self._time_out(execution)
            except Exception as error:  # noqa: BLE001  (the catalog is away: its claims are healed)
                log.warning("time-out not entered", error=repr(error)[:500])
            self._done(execution)
        with self._lock:
            self._start_some()
            running, stopping = list(self._running), list(self._given_up)
        stopping += [execution for execution in running if execution.stragglers()]
        for execution in stopping:
            self._stop(execution)  # again: it may have started its next Spark job since
        now = time.monotonic()
        deadlines = [execution.deadline() for execution in running]
        waits = [deadline - now for deadline in deadlines if deadline is not None]
        return min([*waits, *([_STOP_AGAIN] if stopping else [])], default=None)

    def give_up(self, settle: Callable[[Execution], None]) -> None:
        """Give up everything that runs or waits, because nothing can run here.

        `settle` is called for what runs.
        """
        with self._lock:
            running, waiting = self._running, self._queued()
            self._running = []
            self._waiting.clear()
            for execution in running:
                execution.given_up = True
            self._given_up += running
            self.counts["given up"] += len(running)
        for execution in running:
            try:
                settle(execution)
            except Exception as error:  # noqa: BLE001  (the catalog is away: its claims are healed)
                execution.broken = True
                log.warning("claims not released", error=repr(error)[:500])
        for execution in (*running, *waiting):
            self._done(execution)

    def fence(self, epochs: dict[int, int]) -> None:
        """Stop what runs with an older epoch than its job has; siblings go on."""
        with self._lock:
            executions = [*self._running, *self._queued()]
        for execution in executions:
            jobs = execution.work.jobs
            execution.epochs |= {job: epochs[job] for job in jobs if job in epochs}
            if execution.stragglers():
                self._stop(execution)

    def _queued(self) -> list[Execution]:
        return [execution for queue in self._waiting.values() for _, execution in queue]

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
            return len(self._queued())

    def close(self, *, stop: bool = True, timeout: float = 60.0) -> None:
        """Start nothing more, and wait for what runs, which is stopped unless told otherwise."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            executions = [*self._running, *self._given_up]
        if stop:
            for execution in executions:
                execution.stopped.set()
        deadline = time.monotonic() + timeout
        for execution in executions:
            # Again and again: a consumer may start its next Spark job just now.
            while not execution.ended.wait(_STOP_AGAIN) and time.monotonic() < deadline:
                if execution.stragglers():
                    self._stop(execution)


def _for_backlogs(workers: int) -> int:
    """How many of some workers may work off backlogs."""
    return max(1, workers - 1)
