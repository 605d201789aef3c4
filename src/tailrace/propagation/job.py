"""What a job is, from its row in the job log to a claim on it: frozen values.

A job has a shape for each of those that look at it, and none besides:

- `JobSpec` (`spec`): what its owner asked for;
- `NewJob`: one that is about to be entered;
- `JobRecord`: its whole row in the job log, with what its runs have left there (`LastRun`);
- `Job`: what a runner keeps of it in memory, because there are many;
- `Work`, made of `Member`s: one iteration that was planned, of one job or more;
- `Claim`: a job that this node has entered as running, and will compare its commit with;
- `JobStatus` (`status`), `JobContext` (`consumer`) and `Iteration` (`history`): what users, its
  consumer and the history are told.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum, nonmember
from functools import cached_property
from typing import Any

from tailrace.propagation.spec import JobSpec
from tailrace.propagation.trigger import Trigger, make_trigger, parse_interval


class State(StrEnum):
    """What a job is doing."""

    NEW = "new"  # at rest, and has never run to its end
    IDLE = "idle"  # at rest, and has nothing to do or is not due
    RUNNING = "running"  # an iteration is under way
    FAILING = "failing"  # at rest until its next try: the last one failed
    ERROR = "error"  # failed for good: needs a person, and then `resume` or a new registration
    PAUSED = "paused"  # begins nothing new, until `resume`
    CANCELED = "canceled"  # stopped by a user, until `resume`

    # The old word for a job at rest: the job log still has it, and `lake.jobs.list` takes it.
    COMPLETED = nonmember("completed")


AT_REST = (State.NEW, State.IDLE, State.FAILING)
# States that a job leaves only when a person does something.
STOPPED = (State.ERROR, State.CANCELED, State.PAUSED)


class RunKind(StrEnum):
    """What an iteration delivers."""

    SNAPSHOT = "snapshot"  # all rows at `to`, as inserts: the first run, or a rebuild
    TAIL = "tail"  # what was inserted and deleted in (from, to]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobError:
    """Why the last try of a job failed."""

    code: int  # up to 9999 it passes by itself
    message: str
    at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LastRun:
    """What the runs of a job have left behind."""

    memory: dict[str, Any] = field(default_factory=dict)  # the consumer's own; JSON
    error: JobError | None = None  # of the last try, if that failed

    def with_error(self, error: JobError | None) -> LastRun:
        return replace(self, error=error)


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to be entered."""

    home: str
    name: str
    spec: JobSpec
    sources: Sequence[int] = ()  # table ids
    outputs: Sequence[int] = ()  # ids of the tables that it derives
    upstream: Sequence[int] = ()  # all jobs that it reads from, the farthest first

    @property
    def full_name(self) -> str:
        return f"{self.home}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """What both a `JobRecord` and a `Job` have of a job's row."""

    id: int
    tenant: str
    home: str  # what it is named under
    name: str
    kind: str  # of its consumer
    state: State
    watermark: int | None  # None: it has never run to its end
    claim_to: int | None  # where an iteration that was begun has to end
    catches_up: bool  # that iteration only brings it closer to the others of its group
    node: str | None  # that runs an iteration of it
    epoch: int  # rises when what runs for it must not commit any more
    lsn: int  # the number of the last write of its row
    tries: int  # failures in a row
    retry_at: datetime | None

    @property
    def full_name(self) -> str:
        return f"{self.home}/{self.name}"

    @property
    def is_at_rest(self) -> bool:
        """Whether it waits for something to do, or for its next try."""
        return self.state in AT_REST

    @property
    def is_active(self) -> bool:
        """Whether it takes part in its group."""
        return self.is_at_rest or self.state is State.RUNNING


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord(_Row):
    """A job as the job log has it."""

    spec: JobSpec
    last: LastRun
    created_at: datetime
    dropped_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job(_Row):
    """A job as a runner holds it in memory: little, because there are many."""

    trigger: Trigger
    rule: str  # the trigger as its spec says it: equal for equal ones
    priority: int
    timeout: float | None  # seconds
    sources: tuple[int, ...]  # table ids
    # The jobs that it reads from, directly or not, each behind its own upstream.
    upstream: tuple[int, ...] = ()

    @classmethod
    def of(cls, record: JobRecord, sources: tuple[int, ...], upstream: tuple[int, ...] = ()) -> Job:
        """What a runner keeps of a job."""
        spec = record.spec
        rule = {"job_type": spec.job_type, "schedule": spec.schedule}
        return cls(
            **{name: getattr(record, name) for name in _ROW_FIELDS},
            trigger=make_trigger(spec.job_type, spec.schedule),
            rule=sys.intern(json.dumps(rule, sort_keys=True)),
            priority=spec.priority,
            timeout=None if spec.timeout is None else parse_interval(spec.timeout).total_seconds(),
            sources=sources,
            upstream=upstream,
        )


_ROW_FIELDS = tuple(one.name for one in fields(_Row))


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A job of a work, and where it begins."""

    job: Job  # as it was when the work was planned
    since: int | None  # None: from nothing
    # It only comes closer to the others of its group.
    catches_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """One iteration to be run: jobs that go to the same snapshot."""

    members: tuple[Member, ...]
    to: int
    priority: int
    tenant: str
    # Jobs that commit in one transaction, or not at all, in the order of running; others commit
    # each for itself.
    together: tuple[tuple[int, ...], ...] = ()
    # A first run, or much to catch up with: others are nearly fresh, and do not wait for it.
    is_backlog: bool = False

    @property
    def jobs(self) -> tuple[int, ...]:
        """The ids of the jobs."""
        return tuple(member.job.id for member in self.members)

    @property
    def sources(self) -> set[int]:
        """The ids of all tables that its jobs follow."""
        return {table for member in self.members for table in member.job.sources}

    @cached_property
    def by_job(self) -> dict[int, Member]:
        """The members, by their job's id."""
        return {member.job.id: member for member in self.members}

    def bundles(self) -> list[tuple[int, ...]]:
        """The jobs, by what commits together."""
        first = {job: bundle for bundle in self.together for job in bundle}
        bundles: dict[tuple[int, ...], None] = {}
        for job in self.jobs:
            bundles.setdefault(first.get(job, (job,)))
        return list(bundles)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A job that this node has entered as running: what its commit will be compared with."""

    job: Job  # as it is now: with the epoch of this claim
    spec: JobSpec
    last: LastRun

    @property
    def since(self) -> int | None:
        """Where the iteration begins; None: from nothing."""
        return self.job.watermark

    @property
    def to(self) -> int:
        """Where it ends."""
        assert self.job.claim_to is not None
        return self.job.claim_to
