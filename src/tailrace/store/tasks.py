"""Tasks: work in the background that is no iteration, one row each, from when it is due.

Always true: of two tasks that are open (pending or running) none works on what the other works on.
So whoever enters a task does it under the commit lock, and compares its scope with those of all
that are open. One node runs a task at a time, and what it writes is refused once its claim is over:
the task was canceled, or another node took it over, and its epoch has risen.

What the types of tasks do, and who takes them up, is in `propagation.maintenance`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import Together, in_batches
from tailrace.catalog.part import Int, Text, Time
from tailrace.errors import ConflictError
from tailrace.store import tables as t
from tailrace.store.counters import next_number
from tailrace.store.lookup import DEFAULT_TENANT

# Types of which only two of a kind get in each other's way, for they move no row that is visible.
ALONE = frozenset({"purge", "clean", "sweep"})


class TaskState(StrEnum):
    """What became of a task."""

    PENDING = "pending"  # waits for a node, perhaps until its next try
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # for good: whoever finds the same to be due enters another
    CANCELED = "canceled"


OPEN = (TaskState.PENDING, TaskState.RUNNING)
ENDED = (TaskState.DONE, TaskState.FAILED, TaskState.CANCELED)


class TaskStoppedError(ConflictError):
    """The task was canceled or taken over: what runs here must not write any more."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a task works on: the lake, a table, some files of a table, or an index."""

    table: int | None = None  # None: the lake
    files: frozenset[int] | None = None  # some of the table's, by their ids in the catalog
    job: int | None = None  # of the index

    def overlaps(self, other: Scope) -> bool:
        """Whether one contains the other, or they share a file."""
        if self.table is None or other.table is None:
            return True
        if self.table != other.table:
            return False
        if self.is_table or other.is_table:
            return True
        if self.files is not None and other.files is not None:
            return not self.files.isdisjoint(other.files)
        return self.job is not None and self.job == other.job

    @property
    def is_table(self) -> bool:
        """Whether it is a table as a whole."""
        return self.table is not None and self.files is None and self.job is None

    def part(self) -> str:
        """The part of the table, as it is stored."""
        files = {} if self.files is None else {"files": sorted(self.files)}
        return json.dumps(files if self.job is None else {"job": self.job})

    @staticmethod
    def of(table: int | None, part: str) -> Scope:
        """A scope as it was stored."""
        stored = json.loads(part)
        files = stored.get("files")
        return Scope(
            table=table,
            files=None if files is None else frozenset(files),
            job=stored.get("job"),
        )


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be entered."""

    type: str
    scope: Scope
    spec: Mapping[str, Any] = field(default_factory=dict)  # JSON, in the words of its type
    priority: int = 0

    def conflicts(self, type_: str, scope: Scope) -> bool:
        """Whether it would get in the way of another."""
        if self.type != type_ and (self.type in ALONE or type_ in ALONE):
            return False
        return self.scope.overlaps(scope)


@dataclass(frozen=True, kw_only=True)
class Task(NewTask):
    """A task as it is in the catalog."""

    id: int
    state: TaskState
    retry_at: datetime | None
    executor: str | None
    epoch: int
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Entered:
    """What became of a new task: it has an id, or others that are open are in its way."""

    id: int | None
    others: tuple[Task, ...] = ()


_C = t.task.c
AnyTask = TypeVar("AnyTask", bound=NewTask)
_MINE = (
    _C.task_id == sa.bindparam("own_id", type_=Int),
    _C.epoch == sa.bindparam("own_epoch", type_=Int),
    _C.executor == sa.bindparam("own_executor", type_=Text),
    _C.state == TaskState.RUNNING,
)
_IS_MINE = sa.select(_C.task_id).where(*_MINE).with_for_update()
_FORGET = sa.delete(t.task).where(*_MINE)
_FINISH = (
    sa.update(t.task)
    .where(*_MINE)
    .values(
        state=TaskState.DONE,
        modified_at=sa.bindparam("now", type_=Time),
        result=sa.bindparam("outcome", type_=Text),
        error=None,
        retry_at=None,
    )
)


def _mine(task: Task) -> dict[str, Any]:
    return {"own_id": task.id, "own_epoch": task.epoch, "own_executor": task.executor}


def _from_row(row: Any) -> Task:
    return Task(
        id=row.task_id,
        type=row.type,
        scope=Scope.of(row.table_id, row.scope),
        spec=json.loads(row.spec),
        priority=row.priority,
        state=TaskState(row.state),
        retry_at=row.retry_at,
        executor=row.executor,
        epoch=row.epoch,
        attempts=row.attempts,
    )


# --- who finds that something is due -------------------------------------------------------------


def enter(connection: sa.Connection, new: Sequence[NewTask], now: datetime) -> list[Entered]:
    """Enter tasks, except those that open ones are in the way of. Under the commit lock."""
    if not new:
        return []
    standing, entered = _ByTable(_open(connection, new)), _ByTable[NewTask]()
    free: list[NewTask] = []
    others: list[tuple[Task, ...]] = []
    for one in new:
        found = tuple(standing.in_the_way_of(one))
        others.append(found)
        # Of those entered together the first counts.
        if not found and not any(entered.in_the_way_of(one)):
            free.append(one)
            entered.add(one)
    ids = dict(zip(map(id, free), _insert(connection, free, now), strict=True))
    return [
        Entered(id=ids.get(id(one)), others=found) for one, found in zip(new, others, strict=True)
    ]


class _ByTable(Generic[AnyTask]):
    """Tasks by the tables that they work on: a purge enters one for each of many."""

    def __init__(self, some: Iterable[AnyTask] = ()) -> None:
        self._tasks: dict[int | None, list[AnyTask]] = {}
        for one in some:
            self.add(one)

    def add(self, one: AnyTask) -> None:
        self._tasks.setdefault(one.scope.table, []).append(one)

    def in_the_way_of(self, new: NewTask) -> Iterator[AnyTask]:
        table = new.scope.table
        near = self._tasks if table is None else (table, None)
        for key in near:
            for one in self._tasks.get(key, ()):
                if new.conflicts(one.type, one.scope):
                    yield one


def _open(connection: sa.Connection, new: Sequence[NewTask]) -> list[Task]:
    """The open tasks that may be in the way of new ones."""
    is_open = sa.select(t.task).where(_C.state.in_(OPEN))
    if all(one.type in ALONE for one in new):
        is_open = is_open.where(_C.type.in_({one.type for one in new}))
    if any(one.scope.table is None for one in new):
        return [_from_row(row) for row in connection.execute(is_open)]
    rows = list(connection.execute(is_open.where(_C.table_id.is_(None))))
    for some in in_batches({one.scope.table for one in new}):
        rows += connection.execute(is_open.where(_C.table_id.in_(some))).all()
    return [_from_row(row) for row in rows]


def _insert(connection: sa.Connection, new: Sequence[NewTask], now: datetime) -> range:
    """Their ids."""
    if not new:
        return range(0)
    last = next_number(connection, t.TASKS, len(new))
    ids = range(last - len(new) + 1, last + 1)
    rows = [
        {
            "task_id": number,
            "type": one.type,
            "table_id": one.scope.table,
            "scope": one.scope.part(),
            "spec": json.dumps(dict(one.spec)),
            "state": TaskState.PENDING,
            "priority": one.priority,
            "created_at": now,
            "modified_at": now,
            "epoch": 0,
            "attempts": 0,
        }
        for number, one in zip(ids, new, strict=True)
    ]
    connection.execute(sa.insert(t.task), rows)
    return ids


def last_begun(connection: sa.Connection, type_: str) -> datetime | None:
    """When the newest task of a type was entered."""
    query = sa.select(_C.created_at).where(_C.type == type_)
    return connection.execute(query.order_by(_C.task_id.desc()).limit(1)).scalar_one_or_none()


# --- who does it ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which tasks a node takes up."""

    types: Collection[str]  # those that it has
    only: Collection[int] | None = None  # one of these
    at_once: bool = False  # also one that waits for its next try


def most_urgent(
    connection: sa.Connection,
    choice: Choice,
    now: datetime,
    live: Callable[[sa.Connection], Collection[str]],
) -> Task | None:
    """The task to be taken up first; one that runs counts, too, if its node is not `live`."""
    if choice.only is not None and not choice.only:
        return None
    conditions = [_C.type.in_(choice.types)]
    if choice.only is not None:
        conditions.append(_C.task_id.in_(choice.only))
    ordered = sa.select(t.task).where(*conditions).order_by(_C.priority.desc(), _C.task_id)
    waiting = ordered.where(_C.state == TaskState.PENDING).limit(1)
    if not choice.at_once:
        waiting = waiting.where(sa.or_(_C.retry_at.is_(None), _C.retry_at <= now))
    found = [_from_row(row) for row in connection.execute(waiting)]
    running = connection.execute(ordered.where(_C.state == TaskState.RUNNING))
    if held := [_from_row(row) for row in running]:
        alive = live(connection)
        found += [task for task in held if task.executor not in alive]
    return min(found, key=lambda task: (-task.priority, task.id), default=None)


def claim(
    connection: sa.Connection,
    choice: Choice,
    executor: str,
    now: datetime,
    live: Callable[[sa.Connection], Collection[str]],
    *,
    most_attempts: int,
) -> Task | None:
    """Take the most urgent task, as running on a node; None if there is none. Under the lock.

    One whose node was lost after `most_attempts` may be the reason: it has failed.
    """
    while (first := most_urgent(connection, choice, now, live)) is not None:
        if first.state is TaskState.RUNNING and first.attempts >= most_attempts:
            lost = "its node was lost while it ran, and not for the first time"
            fail(connection, first, lost, now, None)
        elif (taken := _take(connection, first, executor, now)) is not None:
            return taken
    return None


def _take(connection: sa.Connection, task: Task, executor: str, now: datetime) -> Task | None:
    """Enter a task as running; None if another was first."""
    was = [_C.task_id == task.id, _C.epoch == task.epoch, _C.state == task.state]
    values = {
        "state": TaskState.RUNNING,
        "modified_at": now,
        "executor": executor,
        "epoch": _C.epoch + 1,
        "attempts": _C.attempts + 1,
    }
    taken = sa.update(t.task).where(*was).values(**values).returning(t.task)
    row = connection.execute(taken).one_or_none()
    return None if row is None else _from_row(row)


def check(connection: sa.Connection, task: Task) -> None:
    """See that a claim holds, and hold it for this transaction; TaskStoppedError if it is over."""
    if connection.execute(_IS_MINE, _mine(task)).first() is None:
        raise _stopped(task)


def finish(
    statements: Together,
    task: Task,
    result: Mapping[str, Any] | None,
    now: datetime,
    *,
    keep: bool = True,
) -> None:
    """Enter that a task is done, in the transaction that makes it so; or forget it.

    TaskStoppedError refuses the transaction if the claim is over.
    """
    if not keep:
        statements.later(_FORGET, _mine(task), _stopped(task))
        return
    values = {"now": now, "outcome": json.dumps(dict(result or {}))}
    statements.later(_FINISH, {**_mine(task), **values}, _stopped(task))


def _stopped(task: Task) -> TaskStoppedError:
    return TaskStoppedError(
        f"the task {task.id} ({task.type}) was canceled or taken over: "
        "nothing more is written for it"
    )


def fail(
    connection: sa.Connection, task: Task, error: str, now: datetime, retry_at: datetime | None
) -> None:
    """Enter a failure, unless the claim is over; with `retry_at` it waits, else it has failed."""
    _leave(
        connection,
        task,
        now,
        state=TaskState.FAILED if retry_at is None else TaskState.PENDING,
        retry_at=retry_at,
        error=error,
    )


def release(connection: sa.Connection, task: Task, now: datetime) -> None:
    """Leave a task to others, unless the claim is over: it was interrupted, and has not failed."""
    _leave(connection, task, now, state=TaskState.PENDING, attempts=_C.attempts - 1)


def _leave(connection: sa.Connection, task: Task, now: datetime, **values: Any) -> None:
    changed = {"modified_at": now, "epoch": _C.epoch + 1, **values}
    connection.execute(sa.update(t.task).where(*_MINE).values(**changed), _mine(task))


def running(connection: sa.Connection, executor: str, ids: Collection[int]) -> list[Task]:
    """The tasks that a node runs, as far as the catalog knows, and those of some ids."""
    theirs = sa.and_(_C.state == TaskState.RUNNING, _C.executor == executor)
    query = sa.select(t.task).where(sa.or_(theirs, _C.task_id.in_(ids)))
    return [_from_row(row) for row in connection.execute(query)]


# --- who looks after them ------------------------------------------------------------------------


def find(connection: sa.Connection, task_id: int) -> Task | None:
    """A task by its id."""
    row = connection.execute(sa.select(t.task).where(_C.task_id == task_id)).one_or_none()
    return None if row is None else _from_row(row)


def cancel(connection: sa.Connection, task: Task, now: datetime) -> bool:
    """Cancel a task that is open; False if it has ended meanwhile. Under the commit lock."""
    statement = sa.update(t.task).where(_C.task_id == task.id, _C.state.in_(OPEN))
    values = {"state": TaskState.CANCELED, "modified_at": now, "epoch": _C.epoch + 1}
    return bool(connection.execute(statement.values(**values)).rowcount)


def delete_old(connection: sa.Connection, before: datetime) -> None:
    """Delete those that ended before a moment."""
    ended = (_C.state.in_(ENDED), _C.modified_at < before)
    connection.execute(sa.delete(t.task).where(*ended))


def owner(connection: sa.Connection, scope: Scope) -> str:
    """The tenant that a task works for."""
    if scope.table is None:
        return DEFAULT_TENANT
    query = (
        sa.select(t.own_schema.c.tenant)
        .join(dl.table, dl.table.c.schema_id == t.own_schema.c.schema_id)
        .where(dl.table.c.table_id == scope.table)
    )
    return connection.execute(query.limit(1)).scalar() or DEFAULT_TENANT


def counts(connection: sa.Connection) -> Iterable[tuple[str, int, datetime]]:
    """How many are open, or have failed, by state, and since when the oldest of them is there."""
    shown = (*OPEN, TaskState.FAILED)
    columns = (_C.state, sa.func.count(), sa.func.min(_C.created_at, type_=Time))
    for row in connection.execute(
        sa.select(*columns).where(_C.state.in_(shown)).group_by(_C.state)
    ):
        yield row[0], row[1], row[2]
