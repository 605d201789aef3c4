"""The parts of a node put together.

A service looks for work, hands it out, and waits for the next reason to look: one turn. `serve()`
turns on a thread of its own until it is closed; `until_fresh` on the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from tailrace.log import get_logger
from tailrace.propagation.background import Housekeeping
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.health import Health
from tailrace.propagation.history import Iteration
from tailrace.propagation.iteration import Iterations
from tailrace.propagation.job import Job
from tailrace.propagation.maintenance import Maintenance
from tailrace.propagation.node import Node
from tailrace.propagation.runner import Runner
from tailrace.propagation.scheduler import Execution, Scheduler
from tailrace.propagation.watch import Watch
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Heartbeat

log = get_logger("tailrace.service")

# Seconds between failing wake-ups: at first, doubling; and at most, so that a catalog that is back
# is noticed soon.
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Service:
    """A running node."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        *,
        eager: bool = False,
        wanted: Callable[[Job], bool] = lambda _job: True,
        observe: Callable[[Job, Iteration], None] = lambda _job, _done: None,
        upkept: datetime | None = None,
        seen: int | None = None,
    ) -> None:
        """What this process has done before: `upkept` is when it last did the hour's housekeeping,
        `seen` the last snapshot whose changes it has looked at for what is due.
        """
        settings = runtime.settings
        self._runtime, self._observe_more = runtime, observe
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._close_lock = threading.Lock()
        self.closed = False
        self.node = Node(runtime, serves=not eager)
        self.health = Health(
            runtime, self.node, watching=not eager, changed=self._health_changed, lost=self._lost
        )
        self.iterations = Iterations(
            runtime,
            heartbeat,
            self.node.id,
            live=self.node.live,
            observe=self._observe,
            may_begin=self.health.may_begin,
            blame=self._blame,
            leaves=lambda error, job: self.health.leaves(error, job.kind),
            waits_for_spark=not eager,
        )
        self.scheduler = Scheduler(
            run=self.iterations.run,
            done=self._done,
            stop=self.iterations.stop,
            time_out=self.iterations.time_out,
            workers=settings.workers,
            tenant_workers=settings.tenant_workers,
        )
        self.runner = Runner(
            runtime,
            self.node.id,
            live=self.node.live,
            knows=lambda kind: find_consumer(kind) is not None and self.health.knows(kind),
            fence=self.scheduler.fence,
            eager=eager,
            wanted=wanted,
            gave_up=self._gave_up,
            may_begin=self.health.may_begin,
        )
        self.housekeeping = Housekeeping(runtime, self.runner.advanced, last=upkept)
        self.maintenance = Maintenance(
            runtime,
            heartbeat,
            self.node,
            may_begin=lambda: self.health.fault is None,
            seen=seen,
        )
        self._has_seen_all = False
        self._end_listening = runtime.database.listen(self._wake.set)
        self._watch = Watch(runtime.database, settings, self._wake.set)

    # --- turning ----------------------------------------------------------------------------

    def turn(self) -> float:
        """One wake-up; returns the seconds after which the next is due."""
        self._wake.clear()
        deadline = self.scheduler.expire()
        works = self.runner.look()
        if not self.scheduler.submit(*works):
            for work in works:
                self.runner.finished(work)
        self._note_all_once()
        self.maintenance.wake(hourly=self.housekeeping.run())
        due = self.runner.next_due()
        waits = [] if due is None else [(due - self._runtime.clock.now()).total_seconds()]
        waits += [] if deadline is None else [deadline]
        # A moment in the past must not make this spin.
        return max(0.01, min(waits, default=1.0))

    def _note_all_once(self) -> None:
        """All jobs at the start: for what a killed process left, or an upgrade asks for."""
        if self._thread is not None and not self._has_seen_all:
            self._has_seen_all = True
            for entry in list(self.runner.cache.entries.values()):
                self.maintenance.note(entry.job)

    def start(self) -> Service:
        """Turn on a thread of its own."""
        self.health.start()
        self._thread = threading.Thread(target=self._loop, name="tailrace-runner", daemon=True)
        self._thread.start()
        self.maintenance.start()
        return self

    def _loop(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                wait = self.turn()
            except Exception as error:  # noqa: BLE001  (the catalog is away: it may come back)
                self.runner.lost_touch()
                failures += 1
                if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, …: it may take hours
                    log.warning("wake-up failed", failures=failures, error=repr(error)[:500])
                self._stop.wait(min(_PAUSE * 2 ** min(failures, 10), _LONGEST_PAUSE))
                continue
            if failures:
                log.info("wake-up succeeded again", failures=failures)
                failures = 0
            self._wake.wait(wait)

    def _done(self, execution: Execution) -> None:
        self.runner.finished(execution.work, broken=execution.broken)
        self._wake.set()

    def _observe(self, job: Job, done: Iteration) -> None:
        if done.error is None:
            self.maintenance.note(job)
        self._observe_more(job, done)

    def _gave_up(self, _job: Job) -> bool:
        """Whether a job is not tried any more."""
        return False

    # --- a node that cannot work ------------------------------------------------------------

    def _blame(self, job: Job) -> str | None:
        """Why this node failed a job, if the node is to blame: then it is not the job's failure."""
        return self.health.blame(job.id)

    def _lost(self) -> None:
        """Nothing that runs can go on here: release it for other nodes."""
        self.scheduler.give_up(self.iterations.abandon)

    def _health_changed(self) -> None:
        self.runner.look_at_held()
        self._wake.set()

    # --- end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop what runs, wait for it, and leave nothing half done; may be called twice."""
        with self._close_lock:
            if self.closed:
                return
            self.closed = True
            self._stop.set()
            self._wake.set()
            self.health.close()
            self.scheduler.close()
            self._end_listening()
            self._watch.close()
            if self._thread is not None:
                self._thread.join()
            self.maintenance.close()
            self.node.close()
