"""The types of tasks: what each does, and how urgent it is.

A type is one entry of `TYPES`, by the name that rows of the task table have. Its `run` gets a
`TaskContext`, and does what the task's spec asks for within the task's scope:

    class Compact:
        name, priority, keeps_history = "compact", 20, True

        def run(self, context: TaskContext) -> Mapping[str, Any]:
            with context.begin() as txn:
                …
                result = {"rows": …, "bytes": …}
                context.complete(txn, result)
            return result

Always true of each: it may be interrupted at any line and run again, here or elsewhere; and what it
writes, it writes in a transaction that compares the claim: one of `begin()`, or one that calls
`check`. What is one transaction ends with `complete`; what is many returns its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa

from tailrace.catalog.database import Together
from tailrace.log import get_logger
from tailrace.propagation import joblog
from tailrace.propagation.consumer import find_consumer
from tailrace.store import purge as purging
from tailrace.store import tasks
from tailrace.store.clean import Cleaned, clean
from tailrace.store.purge import CLEAN, CLEAN_PRIORITY, Purge
from tailrace.store.runtime import TenantRuntime
from tailrace.store.sweep import Sweep, sweep
from tailrace.store.tasks import NewTask, Scope, Task
from tailrace.store.transaction import Heartbeat, Transaction
from tailrace.store.workspace import Commit

log = get_logger("tailrace.purge")

TaskResult = Mapping[str, Any]  # JSON; "rows" and "bytes" are what was rewritten


class TaskType(Protocol):
    """See the module."""

    @property
    def name(self) -> str:
        """What rows of the task table call it."""

    @property
    def priority(self) -> int:
        """How urgent it is, if nobody says otherwise."""

    @property
    def keeps_history(self) -> bool:
        """Whether its tasks stay in the table for a while once they are done."""

    def run(self, context: TaskContext) -> TaskResult:
        """Do it; an error has it tried again later, or fail for good."""


TYPES: dict[str, TaskType] = {}


@dataclass(kw_only=True)
class TaskContext:
    """What a task works with."""

    runtime: TenantRuntime  # of the tenant that it works for
    task: Task
    heartbeat: Heartbeat
    # Set when it is to end at the next opportunity: the node leaves, or the task was canceled.
    stop: threading.Event
    # Does the pending tasks of a type one after the other, as a part of this one.
    work_off: Callable[[str], Sequence[TaskResult]] = lambda _type: ()
    is_late: Callable[[], bool] = lambda: False
    is_complete: bool = field(default=False, init=False)

    def stopped(self) -> bool:
        """Whether it is to end at the next opportunity; it then simply returns."""
        return self.stop.is_set() or self.is_late()

    def begin(self) -> Transaction:
        """Begin a transaction, which commits only if the claim still holds."""
        self.runtime.database.give_way(self.stop)
        txn = Transaction(self.runtime, self.heartbeat)
        txn.on_commit(lambda commit: self.check(commit.connection))
        return txn

    def check(self, connection: sa.Connection) -> None:
        """See in a transaction that the claim still holds; TaskStoppedError ends it if not."""
        tasks.check(connection, self.task)

    def complete(self, txn: Transaction, result: TaskResult) -> None:
        """Have the commit of a transaction say that the task is done; nothing may follow it."""

        def enter(commit: Commit) -> None:
            self.finish(commit.statements, result)

        txn.on_commit(enter)

    def finish(self, statements: Together, result: TaskResult) -> None:
        """The same for a transaction of the catalog alone."""
        keep = TYPES[self.task.type].keeps_history
        tasks.finish(statements, self.task, result, self.runtime.clock.now(), keep=keep)
        statements.flush()
        self.runtime.step("task entered")
        self.is_complete = True


# --- the lake's history and objects ---------------------------------------------------------------


class _Purging:
    """Moves the horizon, and removes what is below."""

    name, priority, keeps_history = "purge", 40, True

    def run(self, context: TaskContext) -> TaskResult:
        def clean_tables() -> Cleaned:
            done = context.work_off(CLEAN)
            return Cleaned(
                tables=len(done),
                files=sum(one["files"] for one in done),
                bytes=sum(one["bytes"] for one in done),
            )

        done = purging.purge(
            context.runtime, stop=context.stop, fence=context.check, clean_tables=clean_tables
        )
        if done.did_something:
            log.info("purge", **{k: v for k, v in asdict(done).items() if k != "at"})
        return {**asdict(done), "at": done.at.isoformat()}


class _Cleaning:
    """Removes what a purge has left of a table. The history of purges has it."""

    name, priority, keeps_history = CLEAN, CLEAN_PRIORITY, False

    def run(self, context: TaskContext) -> TaskResult:
        table_id = context.task.scope.table
        assert table_id is not None
        return asdict(
            clean(
                context.runtime,
                table_id,
                purge=context.task.spec["purge"],
                stop=context.stop,
                fence=context.check,
                finish=lambda connection: context.finish(Together(connection), {}),
            )
        )


class _Sweeping:
    """Deletes objects that nothing references."""

    name, priority, keeps_history = "sweep", 10, True

    def run(self, context: TaskContext) -> TaskResult:
        return asdict(sweep(context.runtime, stopped=context.stopped, fence=context.check))


PURGE = NewTask(type=_Purging.name, scope=Scope(), priority=_Purging.priority)
SWEEP = NewTask(type=_Sweeping.name, scope=Scope(), priority=_Sweeping.priority)


def purge_of(result: TaskResult) -> Purge:
    """What a purge did, by the result of its task."""
    return Purge(**{**result, "at": datetime.fromisoformat(result["at"])})


def sweep_of(result: TaskResult) -> Sweep:
    """What a sweep did, by the result of its task."""
    return Sweep(**result)


# --- what consumers have made ---------------------------------------------------------------------


class _Tending:
    """Has a consumer look after what it has made for a job, such as the segments of an index."""

    name, priority, keeps_history = "tend", 20, True

    def run(self, context: TaskContext) -> TaskResult:
        job_id = context.task.scope.job
        assert job_id is not None
        with context.runtime.database.read() as connection:
            job = joblog.record(connection, job_id)
        consumer = None if job is None or job.dropped_at else find_consumer(job.kind)
        if consumer is not None:
            consumer.maintain(
                context.runtime,
                context.begin,
                job_id,
                context.stopped,
                anew=bool(context.task.spec.get("anew")),
            )
        return {}


def tending(table_id: int, job_id: int, *, anew: bool = False) -> NewTask:
    """The task of looking after what a job has made, or of making it anew."""
    return NewTask(
        type=_Tending.name,
        scope=Scope(table=table_id, job=job_id),
        spec={"anew": True} if anew else {},
        priority=_Tending.priority,
    )


TYPES |= {one.name: one for one in (_Purging(), _Cleaning(), _Sweeping(), _Tending())}
