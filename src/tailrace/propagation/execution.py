"""A work that is queued or running, for those who may have to stop it.

Written by the threads that run it, read by the scheduler's: each field changes in one step, and a
reader that comes a moment too early comes again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime

from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Claim, RunKind, Work


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
    """See the module."""

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
