"""`run_until_fresh()`: a service that turns on the caller's thread until nothing is stale.

Someone waits for it, so it ignores triggers and pauses between tries, and gives up a job that keeps
failing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from tailrace.errors import JobFailedError, UnavailableError
from tailrace.propagation import joblog, outputs
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Job, State
from tailrace.propagation.service import Service
from tailrace.propagation.status import statuses
from tailrace.store import lookup
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Heartbeat

# How often a failing job is tried.
_TRIES = 3
# Jobs that someone has stopped on purpose are not waited for.
_LEFT_ALONE = (State.PAUSED, State.CANCELED)


class UntilFresh(Service):
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        wanted: Callable[[Job], bool],
        *,
        compacts: bool = False,
        upkept: datetime | None = None,
        seen: int | None = None,
    ) -> None:
        """`compacts`: also tables, at the end; who waits for one view does not wait for that."""
        self._wanted, self._compacts = wanted, compacts
        self._failures: Counter[int] = Counter()  # by job, in a row
        self._own_faults: dict[int, str] = {}  # what was wrong with this node, by job
        super().__init__(runtime, heartbeat, eager=True, wanted=wanted, upkept=upkept, seen=seen)

    def _observe(self, job: Job, done: Iteration) -> None:
        if done.error is None:
            self._failures.pop(job.id, None)
            self._own_faults.pop(job.id, None)
        else:
            self._failures[job.id] += 1
        super()._observe(job, done)

    def _blame(self, job: Job) -> str | None:
        reason = super()._blame(job)
        if reason is not None:
            self._failures[job.id] += 1
            self._own_faults[job.id] = reason
        return reason

    def _gave_up(self, job: Job) -> bool:
        return self._failures[job.id] >= _TRIES

    def run(self, timeout: float | None) -> None:
        """Turn until no wanted job is behind; JobFailedError for those that still fail.

        It does not wait for what is written meanwhile, so that it ends beside a busy writer. A
        chain of jobs gets as many rounds as it is long: each reflects the outputs of the one
        before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        done, rounds, target = 0, 1, 0
        while done < rounds:
            with self._runtime.database.read() as connection:
                target = lookup.newest_snapshot(connection)
            self._run_until(target, deadline, timeout)
            with self._runtime.database.read() as connection:
                rounds = outputs.longest_chain(connection)  # a job's first run may make it longer
            done += 1
        self.scheduler.close(stop=False)
        self.maintenance.run(deadline, tables=self._compacts)
        failed = self._behind(target, broken=True)
        if failed:
            shown = "; ".join(self._describe(job) for job in failed[:5])
            raise JobFailedError(f"{len(failed)} of the jobs still fail: {shown}")

    def _run_until(self, target: int, deadline: float | None, timeout: float | None) -> None:
        while True:
            wait = self.turn()
            behind = self._behind(target)
            running = self.scheduler.running or self.scheduler.waiting
            elsewhere = [job for job in behind if self._runs_elsewhere(job)]
            # If something has happened since this turn began, a job may be ready by now.
            if not behind or not (running or elsewhere or self._wake.is_set()):
                return
            if deadline is not None and time.monotonic() >= deadline:
                names = ", ".join(job.full_name for job in behind[:5])
                waited = timedelta(seconds=timeout or 0)
                raise UnavailableError(f"not fresh after {waited}: still behind: {names}")
            left = wait if deadline is None else min(wait, deadline - time.monotonic())
            self._wake.wait(max(0.0, left))

    def _runs_elsewhere(self, job: Job) -> bool:
        """Whether another node works on a job or on its upstream."""
        needed = [job, *(entry.job for entry in self.runner.cache.upstream(job))]
        return any(one.node in self.runner.live for one in needed)

    def _behind(self, target: int, *, broken: bool = False) -> list[Job]:
        """Jobs that do not reflect a snapshot yet; with `broken`, those that never will."""
        jobs = []
        cache = self.runner.cache
        for entry in list(cache.entries.values()):
            job = entry.job
            if not self._wanted(job) or job.state in _LEFT_ALONE:
                continue
            upstream = [one.job for one in cache.upstream(job) if not cache.is_settled(one)]
            held = any(self._is_stuck(one) for one in upstream)
            if not held and any(one.state in _LEFT_ALONE for one in upstream):
                continue
            late = entry.watermark is None or entry.watermark < target
            behind = cache.is_stale(entry) and late
            if self._is_stuck(job) or (held and behind):
                jobs += [job] if broken else []
            elif behind:
                jobs.append(job)
        return jobs

    def _is_stuck(self, job: Job) -> bool:
        return job.state is State.ERROR or self._gave_up(job)

    def _describe(self, job: Job) -> str:
        with self._runtime.database.read() as connection:
            record = joblog.record(connection, job.id)
            if record is None or record.dropped_at is not None:
                return f"{job.full_name} (it was dropped)"
            (now,) = statuses(connection, [record])
        reason = self._own_faults.get(job.id) or now.error or now.note or "it was not run"
        return f"{job.full_name} ({reason})"
