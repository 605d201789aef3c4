"""What a job is: frozen values, as read from the job log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from tailrace.propagation.spec import JobSpec
from tailrace.propagation.trigger import Trigger


class State(StrEnum):
    """What a job is doing."""

    PENDING = "pending"  # in the queue of a node; never stored
    RUNNING = "running"  # an iteration is under way
    COMPLETED = "completed"  # at rest; only stored: users see one of the three that it stands for
    NEW = "new"  # at rest, and has never run to its end
    FAILING = "failing"  # at rest until its next try: the last one failed
    IDLE = "idle"  # at rest
    ERROR = "error"  # failed for good: needs a person, and then `resume` or a new registration
    CANCELED = "canceled"  # stopped by a user, until `resume`
    PAUSED = "paused"  # begins nothing new, until `resume`


class Kind(StrEnum):
    """What an iteration delivers."""

    SNAPSHOT = "snapshot"  # all rows at `to`, as inserts: the first run, or a rebuild
    TAIL = "tail"  # what was inserted and deleted in (from, to]


# States in which a job takes part in its group.
ACTIVE = (State.COMPLETED, State.RUNNING)
# What `completed` stands for.
AT_REST = (State.NEW, State.FAILING, State.IDLE)
# What the job log has.
STORED = tuple(s for s in State if s not in (State.PENDING, *AT_REST))


def shown(stored: State, *, watermark: int | None, tries: int) -> State:
    """The state that users see; the system views say the same in SQL."""
    if stored is not State.COMPLETED:
        return stored
    if tries:
        return State.FAILING
    return State.NEW if watermark is None else State.IDLE


@dataclass(frozen=True, kw_only=True, slots=True)
class JobError:
    """Why the last try of a job failed."""

    code: int  # up to 9999 it passes by itself
    message: str
    at: str

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "at": self.at}


@dataclass(frozen=True, kw_only=True, slots=True)
class LastRun:
    """What the runs of a job have left behind."""

    memory: dict[str, Any] = field(default_factory=dict)  # the consumer's own; JSON
    error: JobError | None = None  # of the last try, if that failed

    @classmethod
    def from_json(cls, text: str) -> LastRun:
        """As the job log has it."""
        stored = json.loads(text)
        error = stored.get("error")
        return cls(
            memory=stored.get("memory", {}), error=None if error is None else JobError(**error)
        )

    def to_json(self) -> str:
        """For the job log."""
        error = {} if self.error is None else {"error": self.error.to_dict()}
        return json.dumps({"memory": self.memory, **error})

    def with_error(self, error: JobError | None) -> LastRun:
        return replace(self, error=error)


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as the job log has it."""

    id: int
    tenant: str
    home: str  # what it is named under
    name: str
    kind: str
    spec: JobSpec
    state: State
    watermark: int | None
    claim_to: int | None  # where an iteration that was begun has to end
    catches_up: bool
    node: str | None  # that runs an iteration of it
    epoch: int
    lsn: int
    tries: int
    retry_at: datetime | None
    last: LastRun
    created_at: datetime
    dropped_at: datetime | None

    @property
    def label(self) -> str:
        return f"{self.home}/{self.name}"

    @property
    def shown(self) -> State:
        """The state that users see."""
        return shown(self.state, watermark=self.watermark, tries=self.tries)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job as a runner holds it in memory: little, because there are many."""

    id: int
    tenant: str
    home: str
    name: str
    kind: str
    trigger: Trigger
    rule: str  # the trigger as its spec says it: equal for equal ones
    priority: int
    timeout: float | None  # seconds
    sources: tuple[int, ...]  # table ids
    # The jobs that it stands on, near and far, each behind those that it stands on itself.
    upstream: tuple[int, ...] = ()
    state: State
    watermark: int | None
    claim_to: int | None
    catches_up: bool
    node: str | None
    epoch: int
    lsn: int
    tries: int
    retry_at: datetime | None

    @property
    def label(self) -> str:
        return f"{self.home}/{self.name}"

    @property
    def shown(self) -> State:
        """The state that users see."""
        return shown(self.state, watermark=self.watermark, tries=self.tries)


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
        found: dict[tuple[int, ...], None] = {}
        for job in self.jobs:
            found.setdefault(first.get(job, (job,)))
        return list(found)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A job that this node has entered as running: what its commit will be compared with."""

    job: Job  # as it is now, with the epoch of this claim
    since: int | None
    to: int
    spec: JobSpec
    last: LastRun
