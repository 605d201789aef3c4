"""Tasks as users see them, at each door: listed to those whose they are, and canceled."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tailrace
from tailrace.cli.main import app
from tailrace.propagation.task_types import TYPES, TaskContext
from tailrace.store import tables as t
from tailrace.store import tasks
from tailrace.store.tasks import NewTask, Scope
from tests.support import servers
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs


@pytest.fixture
def lake(lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with lake_args.connect(settings=servers.SETTINGS) as opened:
        yield opened


def ids(lake: tailrace.Lake) -> dict[str, int]:
    """Ids of tables, by their names."""
    return {name: lake.table(name).info.id for name in lake.tables()}


def enter(lake: tailrace.Lake, *new: NewTask) -> list[int | None]:
    with lake.runtime.database.lock() as connection:
        entered = tasks.enter(connection, new, lake.runtime.clock.now())
    return [one.id for one in entered]


def test_tasks_are_listed_at_every_door(lake: tailrace.Lake, lake_args: LakeArgs) -> None:
    lake.create_table("orders", {"id": "bigint", "note": "string"}, primary_key="id")
    lake.create_index("orders", "words", using="fulltext", columns=["note"])
    index = lake.index("orders", "words")
    index.rebuild()
    table = ids(lake)["main.orders"]
    (waiting,) = enter(
        lake, NewTask(type="compact", scope=Scope(table=table, files=frozenset({1})))
    )
    newest, older = lake.tasks()
    assert (newest.id, newest.type, newest.object, newest.name) == (
        waiting, "compact", "main.orders", None,
    )  # fmt: skip
    assert (newest.state, newest.attempts, newest.result) == ("pending", 0, None)
    assert (older.type, older.object, older.name) == ("tend", "main.orders", "words")
    assert (older.state, older.attempts, older.result) == ("done", 1, {})
    assert older.created_at <= older.modified_at
    assert lake.tasks(limit=1) == [newest]
    assert json.dumps(newest.to_dict(), default=str)
    want = [("tend", "main.orders", "done"), ("compact", "main.orders", "pending")]
    for text in ("SHOW TASKS", "SELECT * FROM tailrace.tasks ORDER BY task_id"):
        found = lake.sql(text).to_pylist()
        assert [(row["type"], row["object"], row["state"]) for row in found] == want
    assert len(lake.sql("SHOW TASKS LIMIT 1").to_pylist()) == 1
    output = CliRunner().invoke(app, ["tasks", "--lake", lake_args.url, "--output", "json"])
    found = json.loads(output.stdout)
    assert [(row["type"], row["object"], row["state"]) for row in found] == want


def test_a_tenant_sees_and_cancels_its_own(lake: tailrace.Lake, lake_args: LakeArgs) -> None:
    with lake_args.connect(tenant="acme") as other:
        other.create_schema("acme")
        other.create_table("acme.t", {"id": "bigint"})
        table = ids(other)["acme.t"]
        theirs, of_lake = enter(
            lake,
            NewTask(type="compact", scope=Scope(table=table)),
            NewTask(type="sweep", scope=Scope()),
        )
        assert theirs is not None
        assert of_lake is not None
        assert [task.id for task in other.tasks()] == [theirs]
        assert [task.id for task in lake.tasks()] == [of_lake]
        for mine, one in ((other, of_lake), (lake, theirs)):
            with pytest.raises(tailrace.NotFoundError, match=r"no task \d+: lake.tasks\(\)"):
                mine.cancel_task(one)
        other.cancel_task(theirs)
        assert [task.state for task in other.tasks()] == ["canceled"]
        with pytest.raises(tailrace.InvalidError, match="is canceled: only one that waits"):
            other.cancel_task(theirs)


def test_a_task_is_canceled_by_a_statement(lake: tailrace.Lake) -> None:
    (task_id,) = enter(lake, NewTask(type="sweep", scope=Scope()))
    assert lake.sql(f"CANCEL TASK {task_id}").message == f"task {task_id} canceled"
    assert [task.state for task in lake.tasks()] == ["canceled"]
    with pytest.raises(tailrace.NotFoundError, match="SHOW TASKS shows the last"):
        lake.sql("CANCEL TASK 99")
    with pytest.raises(tailrace.InvalidError, match="task_id"):
        lake.cancel_task(0)


def test_a_running_task_that_is_canceled_ends_soon(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    class Endless:
        name, priority, keeps_history = "endless", 1, True

        def run(self, context: TaskContext) -> dict[str, Any]:
            began.set()
            assert context.stop.wait(60)
            ended.set()
            return {}

    monkeypatch.setitem(TYPES, "endless", Endless())
    (task_id,) = enter(lake, NewTask(type="endless", scope=Scope(table=1)))
    assert task_id is not None
    with lake.serving():
        assert began.wait(30)
        lake.cancel_task(task_id)
        assert ended.wait(30)
        wait_until(lambda: not _running(lake), what="the end")
    assert [task.state for task in lake.tasks() if task.id == task_id] == ["canceled"]


def _running(lake: tailrace.Lake) -> set[int]:
    return {one for service in lake._services for one in _service(service).executor.running}


def _service(serving: Any) -> Any:
    return serving.service.maintenance


def test_the_system_view_has_the_columns_of_the_table(lake: tailrace.Lake) -> None:
    shown = set(lake.sql("SHOW TASKS").columns)
    hidden = {"table_id", "scope", "spec", "executor", "epoch"}
    assert shown == {column.name for column in t.task.c} - hidden | {"object", "name", "node"}
