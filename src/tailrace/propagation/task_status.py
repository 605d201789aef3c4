"""Tasks as their owners see them: listed, newest first, and canceled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.part import VIEW_PREFIX, Int, Text, Time
from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.store import tasks
from tailrace.store.tasks import ENDED, TaskState


@dataclass(frozen=True, kw_only=True)
class TaskStatus:
    """A task of maintenance."""

    id: int
    type: str
    object: str | None  # the table that it works on, or on a part of; None: the lake
    name: str | None  # of the index, if it is one's
    state: TaskState
    priority: int  # the highest is taken first
    attempts: int  # how often it was begun
    error: str | None  # of the last try, if that failed
    retry_at: datetime | None  # after a failure: not to be tried before
    node: str | None  # that runs it, or has run it
    created_at: datetime
    modified_at: datetime
    result: Mapping[str, Any] | None  # what it did, once it is done

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


_VIEW = sa.table(
    f"{VIEW_PREFIX}tasks",
    sa.column("task_id", Int),
    sa.column("tenant", Text),
    *(sa.column(name, Text) for name in ("type", "object", "name", "state", "error", "node")),
    *(sa.column(name, Int) for name in ("priority", "attempts")),
    *(sa.column(name, Time) for name in ("retry_at", "created_at", "modified_at")),
    sa.column("result", Text),
)


def task_statuses(connection: sa.Connection, tenant: str, limit: int) -> list[TaskStatus]:
    """The last tasks of a tenant, newest first."""
    query = sa.select(_VIEW).where(_VIEW.c.tenant == tenant).order_by(_VIEW.c.task_id.desc())
    found = []
    for row in connection.execute(query.limit(limit)).mappings():
        known = {name: row[name] for name in TaskStatus.__dataclass_fields__ if name in row}
        result = None if row["result"] is None else json.loads(row["result"])
        state = TaskState(row["state"])
        found.append(
            TaskStatus(**{**known, "id": row["task_id"], "state": state, "result": result})
        )
    return found


def cancel_task(connection: sa.Connection, tenant: str, task_id: int, now: datetime) -> None:
    """Cancel a task of a tenant. Under the commit lock."""
    task = tasks.find(connection, task_id)
    if task is None or tasks.owner(connection, task.scope) != tenant:
        raise NotFoundError(f"there is no task {task_id}", fix=Fix(Action.LIST_TASKS))
    if task.state in ENDED or not tasks.cancel(connection, task, now):
        raise InvalidError(
            f"the task {task_id} is {task.state}: only one that waits or runs can be canceled"
        )
