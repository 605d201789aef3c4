"""A work that is running, as those see it who may have to stop it.

Written by the threads that run it, read by the scheduler's: every field is replaced or grown in
one step, and a reader that comes a moment too early comes again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime

from tailrace.propagation.job import Claim, Work


@dataclass(frozen=True, kw_only=True)
class Running:
    """Jobs that run at this moment, and commit together."""

    tag: str  # of their Spark jobs
    job: int  # the one whose turn it is
    started_at: datetime
    started: float  # by the monotonic clock
    deadline: float


@dataclass(eq=False)
class Flight:
    """See the module."""

    work: Work
    stopped: threading.Event = field(default_factory=threading.Event)  # all of it
    claims: dict[int, Claim] = field(default_factory=dict)  # by job: claimed and not settled
    # The last epoch of each job in the job log: a claim with an older one must not go on.
    epochs: dict[int, int] = field(default_factory=dict)
    running: dict[tuple[int, ...], Running] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # of the source tables
    failures: int = 0  # jobs that failed
    broken: bool = False  # it ended by an error that could not be entered with its jobs

    def must_stop(self, jobs: tuple[int, ...]) -> bool:
        """Whether jobs of it must not go on."""
        if self.stopped.is_set():
            return True
        claims = [self.claims.get(job) for job in jobs]
        return any(c is not None and c.job.epoch < self.epochs.get(c.job.id, -1) for c in claims)

    def stragglers(self) -> list[str]:
        """The tags of what runs and must not."""
        return [run.tag for jobs, run in list(self.running.items()) if self.must_stop(jobs)]

    def late(self) -> list[tuple[int, ...]]:
        """The jobs that have run for too long."""
        now = time.monotonic()
        return [jobs for jobs, run in list(self.running.items()) if run.deadline <= now]

    def deadline(self) -> float | None:
        """When the next of them will have."""
        return min((run.deadline for run in list(self.running.values())), default=None)
