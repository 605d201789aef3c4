"""The task table: what may be open at once, who gets what, and whose word counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog.database import Together
from tailrace.store import tables as t
from tailrace.store import tasks
from tailrace.store.tasks import ALONE, Choice, NewTask, Scope, Task, TaskState, TaskStoppedError
from tests.support import counted, seeds
from tests.support.clock import MovableClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

TABLES, PARTS = (1, 2), (1, 2, 3)
ANY = ("compact", "tend", "purge", "clean", "sweep")


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(lake_args: LakeArgs, clock: MovableClock) -> Iterator[tailrace.Lake]:
    with lake_args.connect(clock=clock) as opened:
        yield opened


def atoms(scope: Scope) -> set[object]:
    """The pieces of two tables that a scope covers: an answer that needs no rules."""
    every = {
        table: {("rest", table), *((kind, table, n) for kind in ("file", "index") for n in PARTS)}
        for table in TABLES
    }
    if scope.table is None:
        return {"lake"}.union(*every.values())
    if scope.files is not None:
        return {("file", scope.table, n) for n in scope.files}
    if scope.job is not None:
        return {("index", scope.table, scope.job)}
    return set(every[scope.table])


def random_scope(random: Random) -> Scope:
    table = random.choice(TABLES)
    files = frozenset(random.sample(PARTS, random.randint(1, 2)))
    return random.choice(
        [
            Scope(),
            Scope(table=table),
            Scope(table=table, files=files),
            Scope(table=table, job=random.choice(PARTS)),
        ]
    )


def test_scopes_overlap_if_they_share_anything() -> None:
    random = Random(seeds.seed())
    for _ in range(2000):
        one, other = random_scope(random), random_scope(random)
        assert one.overlaps(other) == bool(atoms(one) & atoms(other)), (one, other)
        assert Scope.of(one.table, one.part()) == one


def enter(lake: tailrace.Lake, *new: NewTask) -> list[int | None]:
    with lake.runtime.database.lock() as connection:
        entered = tasks.enter(connection, new, lake.runtime.clock.now())
    return [one.id for one in entered]


def claim(lake: tailrace.Lake, node: str, live: set[str], **how: Any) -> Task | None:
    choice, most = Choice(types=ANY), how.get("most_attempts", 20)
    with lake.runtime.database.lock() as connection:
        now = lake.runtime.clock.now()
        return tasks.claim(connection, choice, node, now, lambda _: live, most_attempts=most)


def finish(lake: tailrace.Lake, task: Task, **result: Any) -> None:
    with lake.runtime.database.write() as connection:
        statements = Together(connection)
        tasks.finish(statements, task, result, lake.runtime.clock.now())
        statements.flush()


def states(lake: tailrace.Lake) -> dict[int, str]:
    with lake.runtime.database.read() as connection:
        return dict(connection.execute(sa.select(t.task.c.task_id, t.task.c.state)).all())


def small(type_: str = "compact", priority: int = 0, **scope: Any) -> NewTask:
    return NewTask(type=type_, scope=Scope(**scope), priority=priority)


@pytest.mark.parametrize("seed", range(4))
def test_of_two_open_tasks_none_is_in_the_way_of_the_other(lake: tailrace.Lake, seed: int) -> None:
    random = Random(1000 * seeds.seed() + seed)
    open_: dict[int, NewTask] = {}
    refused = 0
    for _ in range(25):
        new = [
            NewTask(type=random.choice(ANY), scope=random_scope(random))
            for _ in range(random.randint(1, 3))
        ]
        for one, task_id in zip(new, enter(lake, *new), strict=True):
            ways = [
                task
                for task in open_.values()
                if bool(atoms(task.scope) & atoms(one.scope))
                and (task.type == one.type or not {task.type, one.type} & ALONE)
            ]
            assert (task_id is None) == bool(ways), (one, ways)
            refused += bool(ways)
            if task_id is not None:
                open_[task_id] = one
        if open_ and random.random() < 0.6:
            task = claim(lake, "a", {"a"})
            if task is not None:
                finish(lake, task)
                del open_[task.id]
    assert refused
    counted.count("tasks entered", len(states(lake)))


def test_the_highest_priority_goes_first_and_then_the_oldest(lake: tailrace.Lake) -> None:
    ids = enter(
        lake,
        small(table=1, priority=1),
        small(table=2, priority=5),
        small(table=3, priority=5),
        small(table=4, priority=9),
    )
    order = []
    while (task := claim(lake, "a", {"a"})) is not None:
        order.append(task.id)
    assert order == [ids[3], ids[1], ids[2], ids[0]]


def test_each_task_is_claimed_once_by_many(lake: tailrace.Lake) -> None:
    ids = enter(lake, *(small(table=number) for number in range(12)))
    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda n: claim(lake, f"node {n}", {f"node {n}"}), [0] * 12))
    assert sorted(task.id for task in claimed if task is not None) == ids
    assert claim(lake, "node 0", {"node 0"}) is None


def test_what_a_node_left_is_taken_over_and_it_comes_too_late(lake: tailrace.Lake) -> None:
    enter(lake, small(table=1))
    first = claim(lake, "a", {"a", "b"})
    assert first is not None
    assert claim(lake, "b", {"a", "b"}) is None
    second = claim(lake, "b", {"b"})
    assert second is not None
    assert (second.id, second.epoch, second.attempts) == (first.id, first.epoch + 1, 2)
    for late in (lambda: finish(lake, first), lambda: check(lake, first)):
        with pytest.raises(TaskStoppedError, match="taken over"):
            late()
    with lake.runtime.database.write() as connection:  # nor can it say that it has failed
        tasks.fail(connection, first, "late", lake.runtime.clock.now(), None)
    check(lake, second)
    finish(lake, second, rows=3)
    assert states(lake) == {second.id: TaskState.DONE}
    with pytest.raises(TaskStoppedError):
        finish(lake, second)


def check(lake: tailrace.Lake, task: Task) -> None:
    with lake.runtime.database.write() as connection:
        tasks.check(connection, task)


def test_what_kills_its_nodes_is_not_taken_over_for_ever(lake: tailrace.Lake) -> None:
    (task_id,) = enter(lake, small(table=1))
    for number in range(3):
        assert claim(lake, f"n{number}", {f"n{number}"}, most_attempts=3) is not None
    assert claim(lake, "n4", {"n4"}, most_attempts=3) is None
    assert states(lake) == {task_id: TaskState.FAILED}


def test_one_that_failed_waits_and_one_that_failed_for_good_is_in_nobodys_way(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    enter(lake, small(table=1))
    again = clock.now() + timedelta(minutes=1)
    fail(lake, claim(lake, "a", {"a"}), again)
    assert claim(lake, "a", {"a"}) is None
    assert enter(lake, small(table=1)) == [None]  # it is still to be done
    clock.advance(timedelta(minutes=2))
    fail(lake, claim(lake, "a", {"a"}), None)
    (other,) = enter(lake, small(table=1))
    assert other is not None
    assert list(states(lake).values()) == [TaskState.FAILED, TaskState.PENDING]


def fail(lake: tailrace.Lake, task: Task | None, again: Any) -> None:
    assert task is not None
    with lake.runtime.database.write() as connection:
        tasks.fail(connection, task, "broken", lake.runtime.clock.now(), again)


def test_the_history_goes_by_age_and_what_is_open_stays(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    enter(lake, small(table=1), small(table=2))
    done = claim(lake, "a", {"a"})
    assert done is not None
    finish(lake, done)
    clock.advance(timedelta(days=30))
    with lake.runtime.database.write() as connection:
        tasks.delete_old(connection, clock.now() - timedelta(days=31))
    assert len(states(lake)) == 2
    with lake.runtime.database.write() as connection:
        tasks.delete_old(connection, clock.now() - timedelta(days=7))
    assert list(states(lake).values()) == [TaskState.PENDING]


def test_files_of_one_table_are_worked_on_side_by_side(lake: tailrace.Lake) -> None:
    sides = [small(table=1, files=frozenset(files)) for files in ((1, 2), (3,), (4, 5))]
    assert None not in enter(lake, *sides)
    running = [claim(lake, "a", {"a"}) for _ in sides]
    scopes = [task.scope for task in running if task is not None]
    assert len(scopes) == 3
    assert not any(one.overlaps(other) for one, other in combinations(scopes, 2))
