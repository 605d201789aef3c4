"""The tasks of a node: who runs what beside what, what becomes of failures, what a look costs."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.indexes.consumer import IndexConsumer
from tailrace.propagation import monitor
from tailrace.propagation.maintenance import do_now
from tailrace.propagation.monitor import Monitor
from tailrace.propagation.task_types import TYPES, TaskContext
from tailrace.store import tables as t
from tailrace.store import tasks
from tailrace.store.tasks import Choice, NewTask, Scope, TaskState, TaskStoppedError
from tests.support import servers
from tests.support.clock import MovableClock
from tests.support.lakes import configure
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.lakes import LakeArgs

SETTINGS = replace(servers.SETTINGS, maintenance_workers=3)


@dataclass
class Probe:
    """A type of task that does what a test says, and notes what ran beside what."""

    name: str = "probe"
    priority: int = 5
    keeps_history: bool = True
    act: Callable[[TaskContext], dict[str, Any] | None] = lambda _context: None
    running: list[Scope] = field(default_factory=list)
    beside: list[tuple[Scope, Scope]] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, context: TaskContext) -> dict[str, Any]:
        scope = context.task.scope
        with self.lock:
            self.ran.append(context.task.id)
            self.beside += [(scope, other) for other in self.running]
            self.running.append(scope)
        try:
            return self.act(context) or {}
        finally:
            with self.lock:
                self.running.remove(scope)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    made = Probe()
    monkeypatch.setitem(TYPES, made.name, made)
    return made


@pytest.fixture
def lake(lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with lake_args.connect(settings=SETTINGS) as opened:
        yield opened


def enter(lake: tailrace.Lake, *scopes: Scope, **how: Any) -> list[int]:
    new = [NewTask(type="probe", scope=scope, **how) for scope in scopes]
    with lake.runtime.database.lock() as connection:
        entered = tasks.enter(connection, new, lake.runtime.clock.now())
    return [one.id for one in entered if one.id is not None]


def rows(lake: tailrace.Lake) -> dict[int, Any]:
    with lake.runtime.database.read() as connection:
        found = connection.execute(sa.select(t.task).where(t.task.c.type == "probe"))
        return {row.task_id: row for row in found}


def states(lake: tailrace.Lake) -> list[str]:
    return [row.state for _, row in sorted(rows(lake).items())]


def all_ended(lake: tailrace.Lake) -> bool:
    return not {"pending", "running"} & set(states(lake))


def test_disjoint_scopes_run_together_and_overlapping_ones_never(
    lake: tailrace.Lake, probe: Probe
) -> None:
    meeting = threading.Barrier(3)

    def meet(context: TaskContext) -> None:
        if context.task.scope.table == 1:
            meeting.wait(30)  # all three are needed to go on

    probe.act = meet
    parts = [Scope(table=1, files=frozenset({n})) for n in (1, 2)] + [Scope(table=1, job=7)]
    assert len(enter(lake, *parts, Scope(table=1), Scope(table=2), Scope(table=2))) == 4
    with lake.serving():
        wait_until(lambda: all_ended(lake), what="the tasks")
    assert states(lake) == ["done"] * 4
    assert probe.beside
    assert not any(one.overlaps(other) for one, other in probe.beside)


def test_one_that_fails_for_good_blocks_no_other(lake: tailrace.Lake, probe: Probe) -> None:
    tried: Counter[int | None] = Counter()

    def act(context: TaskContext) -> dict[str, Any]:
        table = context.task.scope.table
        tried[table] += 1
        if table == 1:
            raise tailrace.InvalidError("it cannot be done")
        if table == 2 and tried[table] < 3:
            raise tailrace.UnavailableError("not now")
        return {"rows": 7}

    probe.act = act
    enter(lake, *(Scope(table=number) for number in (1, 2, 3)))
    with lake.serving():
        wait_until(lambda: all_ended(lake), what="the tasks")
        assert states(lake) == ["failed", "done", "done"]
        enter(lake, Scope(table=1))  # nor one of its own scope
        wait_until(lambda: len(states(lake)) == 4 and all_ended(lake), what="another")
    failed, retried, *_ = (row for _, row in sorted(rows(lake).items()))
    assert "it cannot be done" in failed.error
    assert (retried.error, retried.attempts, retried.result) == (None, 3, '{"rows": 7}')
    assert tried == {1: 2, 2: 3, 3: 1}


def test_a_node_that_leaves_lets_go_of_its_tasks(lake: tailrace.Lake, probe: Probe) -> None:
    began = threading.Event()

    def act(context: TaskContext) -> None:
        began.set()
        assert context.stop.wait(30)

    probe.act = act
    enter(lake, Scope(table=1))
    with lake.serving():
        assert began.wait(30)
    assert states(lake) == ["pending"]
    probe.act = lambda _context: None
    with lake.serving():
        wait_until(lambda: all_ended(lake), what="the task")
    assert [row.attempts for row in rows(lake).values()] == [1]  # to be stopped is no failure


def test_one_transaction_has_the_result_and_the_end(lake: tailrace.Lake, probe: Probe) -> None:
    """Either both are there, or neither is: the claim was lost before, or the commit failed."""
    lake.create_table("t", {"id": "bigint"})
    lose = True

    def act(context: TaskContext) -> dict[str, Any]:
        with context.begin() as txn:
            txn.table("t").append([{"id": 1}])
            context.complete(txn, {"rows": 1})
            if lose:
                with lake.runtime.database.lock() as connection:
                    tasks.cancel(connection, context.task, lake.runtime.clock.now())
        return {"rows": 1}

    probe.act = act
    new = NewTask(type="probe", scope=Scope(table=1))
    with pytest.raises(TaskStoppedError):
        do_now(lake.runtime, lake._heartbeat, new)
    assert (states(lake), len(lake.table("t").to_arrow())) == (["canceled"], 0)
    lose = False
    assert do_now(lake.runtime, lake._heartbeat, new) == {"rows": 1}
    assert (states(lake), len(lake.table("t").to_arrow())) == (["canceled", "done"], 1)
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)


def test_who_waits_does_what_is_in_the_way_first(lake: tailrace.Lake, probe: Probe) -> None:
    (before,) = enter(lake, Scope(table=1))
    do_now(lake.runtime, lake._heartbeat, NewTask(type="probe", scope=Scope(), spec={"a": 1}))
    assert probe.ran == [before, before + 1]
    # One that waits and is the same is done in its place.
    (same,) = enter(lake, Scope(table=2))
    do_now(lake.runtime, lake._heartbeat, NewTask(type="probe", scope=Scope(table=2)))
    assert probe.ran == [before, before + 1, same]


def test_two_nodes_do_not_tend_an_index_at_once(
    lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: Counter[int] = Counter()
    most, times = Counter[int](), Counter[int]()
    lock = threading.Lock()
    maintain = IndexConsumer.maintain

    def counting(self: IndexConsumer, runtime: Any, begin: Any, job: int, *rest: Any, **how: Any):
        with lock:
            inside[job] += 1
            most[job], times[job] = max(most[job], inside[job]), times[job] + 1
        try:
            maintain(self, runtime, begin, job, *rest, **how)
        finally:
            with lock:
                inside[job] -= 1

    monkeypatch.setattr(IndexConsumer, "maintain", counting)
    settings = replace(SETTINGS, merge_segments=2)
    with ExitStack() as stack:
        lakes = [stack.enter_context(lake_args.connect(settings=settings)) for _ in range(2)]
        table = lakes[0].create_table("doc", {"id": "bigint", "note": "string"}, primary_key="id")
        lakes[0].create_index("doc", "words", using="fulltext", columns=["note"])
        index = lakes[0].index("doc", "words")
        for one in lakes:
            stack.enter_context(one.serving())
        for number in range(12):
            table.append([{"id": number, "note": f"box {number}"}])
            index.wait(timeout=60)
            if number % 4 == 3:
                index.rebuild()
        wait_until(lambda: index.status().segments < 4, what="merges")
        assert len(index.search("box", 100)) == 12
        assert set(most.values()) == {1}
        assert times.total() >= 3


def test_a_served_lake_is_swept_once_an_hour_by_one_of_its_nodes(lake_args: LakeArgs) -> None:
    clock = MovableClock()

    def sweeps(lake: tailrace.Lake) -> list[str]:
        return [str(task.state) for task in lake.tasks() if task.type == "sweep"]

    with ExitStack() as stack:
        first, second = (
            stack.enter_context(lake_args.connect(settings=SETTINGS, clock=clock)) for _ in "ab"
        )
        configure(first, transaction_timeout=timedelta(minutes=1), node_timeout=timedelta(days=1))
        first.create_table("t", {"id": "bigint"})
        dead = first.transaction()
        dead.table("t").append([{"id": 1}])
        first._heartbeat.forget(dead.id)
        clock.advance(timedelta(minutes=2))
        assert len(list(first.runtime.storage.list())) == 1
        for lake in (first, second):
            stack.enter_context(lake.serving())
        wait_until(lambda: sweeps(first) == ["done"], what="a sweep")
        assert list(first.runtime.storage.list()) == []
        clock.advance(timedelta(hours=2))
        wait_until(lambda: sweeps(first) == ["done"] * 2, what="another")
        maintained = [
            service.service.maintenance for lake in (first, second) for service in lake._services
        ]
        wait_until(lambda: not any(one._is_hour for one in maintained), what="both to have looked")
        assert sweeps(first) == ["done"] * 2


# --- the monitor ----------------------------------------------------------------------------------


@contextmanager
def asking(producer: monitor.Producer) -> Iterator[None]:
    monitor.PRODUCERS.append(producer)
    try:
        yield
    finally:
        monitor.PRODUCERS.remove(producer)


def test_producers_are_asked_about_what_has_changed_and_again_after_a_task(
    lake: tailrace.Lake, probe: Probe
) -> None:
    asked: list[int] = []

    def due(_runtime: Any, changed: Any) -> list[NewTask]:
        asked.extend(changed)
        return [NewTask(type="probe", scope=Scope(table=one)) for one in changed if len(asked) < 4]

    for name in "ab":
        lake.create_table(name, {"id": "bigint"}).append([{"id": 1}])
    with lake.runtime.database.read() as connection:
        a, b = connection.execute(sa.select(t.own_table.c.table_id)).scalars()
    looking = Monitor(lake.runtime)
    with asking(due):
        assert [one.id for one in looking.look()] == [1, 2]
        assert (asked, looking.look()) == ([a, b], [])
        lake.table("b").append([{"id": 2}])
        (refused,) = looking.look()  # one is open
        assert (asked, refused.id, refused.others[0].id) == ([a, b, b], None, 2)
        looking.ended(a)
        looking.look()
        assert asked == [a, b, b, a]
    looking.store()
    again = Monitor(lake.runtime)
    with asking(due):
        again.look()
    assert len(asked) == 4  # what was looked at is not looked at again


def test_what_could_not_be_entered_is_looked_at_again(
    lake: tailrace.Lake, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("a", {"id": "bigint"}).append([{"id": 1}])
    looking = Monitor(lake.runtime)
    with asking(lambda _runtime, changed: [NewTask(type="probe", scope=Scope(table=changed[0]))]):
        with monkeypatch.context() as away:
            away.setattr(tasks, "enter", _unavailable)
            with pytest.raises(tailrace.UnavailableError):
                looking.look()
        assert [one.id for one in looking.look()] == [1]
        assert looking.look() == []


def _unavailable(*_: object) -> None:
    raise tailrace.UnavailableError("the catalog is away")


def test_a_look_costs_what_has_changed_however_many_tables_there_are(
    lake: tailrace.Lake, lake_args: LakeArgs
) -> None:
    many = 100_000
    row = {"primary_key": "[]", "last_alter_snapshot": 1, "last_rewrite_snapshot": 0}
    tables = [{**row, "table_id": 1000 + n, "last_change_snapshot": n // 2} for n in range(many)]
    database = lake.runtime.database
    with database.write() as connection:
        connection.execute(sa.insert(t.own_table), tables)
        if lake_args.catalog == "postgres":
            connection.exec_driver_sql("ANALYZE tailrace_table")
    seen = many // 2 - 3
    asked = monitor.CHANGED.params(seen=seen)
    text = str(asked.compile(database.engine, compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN QUERY PLAN " if lake_args.catalog == "sqlite" else "EXPLAIN "
    with database.read() as connection:
        plan = "\n".join(str(line) for line in connection.exec_driver_sql(explain + text))
    assert "tailrace_ix_last_change" in plan
    assert "SCAN tailrace_table" not in plan
    assert "Seq Scan" not in plan
    assert len(database.rows(monitor.CHANGED, {"seen": seen})) == 4
    with asking(lambda _runtime, changed: pytest.fail(f"asked about {len(changed)}")):
        Monitor(lake.runtime, seen=many).look()


def test_a_late_node_is_refused_by_the_epoch_alone(lake: tailrace.Lake, probe: Probe) -> None:
    """It was taken for dead, and another did its task meanwhile: what it then commits is undone."""
    lake.create_table("t", {"id": "bigint"})
    slow, go_on = threading.Event(), threading.Event()

    def act(context: TaskContext) -> dict[str, Any]:
        with context.begin() as txn:
            txn.table("t").append([{"id": context.task.epoch}])
            if context.task.epoch == 1:
                slow.set()
                assert go_on.wait(60)
            context.complete(txn, {"epoch": context.task.epoch})
        return {}

    probe.act = act
    new, errors = NewTask(type="probe", scope=Scope(table=1)), []

    def late() -> None:
        try:
            do_now(lake.runtime, lake._heartbeat, new)
        except TaskStoppedError as error:
            errors.append(error)

    thread = threading.Thread(target=late)
    thread.start()
    assert slow.wait(30)
    with lake.runtime.database.write() as connection:  # as if nobody had heard of it for long
        choice, now = Choice(types=["probe"]), lake.runtime.clock.now()
        taken = tasks.claim(connection, choice, "other", now, lambda _: (), most_attempts=9)
    assert taken is not None
    with lake.runtime.database.write() as connection:
        tasks.release(connection, taken, lake.runtime.clock.now())
    do_now(lake.runtime, lake._heartbeat, new)
    go_on.set()
    thread.join(60)
    assert len(errors) == 1
    assert lake.table("t").to_arrow().to_pylist() == [{"id": 4}]  # each step has raised it
    assert states(lake) == [TaskState.DONE]
