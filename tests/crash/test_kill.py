"""A process killed at any step of a write: reopened, the lake is as before or as after.

The lakes are shared by the tests of this module, each of which leaves a history behind: what one
kill breaks, the next test sees too.
"""

from __future__ import annotations

import itertools
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.store import tables as t
from tests.support import children, duck, victim
from tests.support.clock import MovableClock
from tests.support.lakes import CATALOGS, LakeArgs
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from collections.abc import Iterator

# Every step of `victim.several_writes`, in order.
STEPS = [
    "registered",
    "files written",
    "files written",
    "files written",
    "files written",
    "delete file written",
    "delete file written",
    "prepared",
    "locked",
    "rows written",
    "committed",
]
# The objects it writes: four data files and two delete files.
OBJECTS = 6

Rows = dict[str, list[tuple[Any, ...]]]

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=CATALOGS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LakeArgs]:
    """A lake of each kind."""
    directory = str(tmp_path_factory.mktemp("lake"))
    if request.param == "sqlite":
        args = LakeArgs(catalog="sqlite", url=directory)
        make(args)
        yield args
        return
    server = request.getfixturevalue("postgres_server")
    database = server.create_database()
    args = LakeArgs(catalog="postgres", url=server.url(database), data=directory)
    make(args)
    yield args
    server.drop_database(database)


def make(args: LakeArgs) -> None:
    with args.connect() as lake:
        lake.create_table("account", {"id": "bigint", "v": "string"}, primary_key="id")
        lake.create_table("log", {"n": "bigint", "text": "string"})


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(place: LakeArgs, clock: MovableClock) -> Iterator[tailrace.Lake]:
    with place.connect(clock=clock) as opened:
        yield opened


@pytest.fixture
def number(lake: tailrace.Lake) -> int:
    """Ten keys of this test's own, one of them deleted already, so that deletes are rebased."""
    number = next(_numbers)
    ids = range(10 * number, 10 * number + 9)
    lake.table("account").append([{"id": i, "v": "old"} for i in ids])
    lake.table("account").delete([{"id": 10 * number + 2}])
    return number


@pytest.fixture(autouse=True)
def few_tables(lake: tailrace.Lake) -> Iterator[None]:
    """Drop what a test has created: reading it all over again would be most of the time."""
    yield
    with lake.transaction() as txn:
        for name in lake.tables():
            if name.startswith("main.extra_"):
                txn.drop_table(name)


def rows(lake: tailrace.Lake) -> Rows:
    return {name: bag(lake.table(name).to_arrow()) for name in lake.tables()}


def after(before: Rows, number: int) -> Rows:
    """What `victim.several_writes` makes of a lake."""
    first = 10 * number
    account = dict(before["main.account"])
    del account[first + 1]
    account |= {first: "new", first + 9: "newer"}
    return before | {
        "main.account": sorted(account.items()),
        "main.log": sorted([*before["main.log"], (number, "moved")]),
        f"main.extra_{number}": [(number,)],
    }


def kill(place: LakeArgs, work: Any, *arguments: Any, step: str, nth: int) -> None:
    child = children.start(victim.run, place, work, arguments, step, nth)
    assert children.join(child) == -signal.SIGKILL


def objects(place: LakeArgs) -> set[str]:
    root = place.data_directory
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def referenced(lake: tailrace.Lake) -> set[str]:
    """Every object that the catalog names, now or for an older snapshot."""
    found: set[str] = set()
    with lake._runtime.database.read() as connection:
        for files in (dl.data_file, dl.delete_file):
            query = (
                sa.select(dl.schema.c.path + dl.table.c.path + files.c.path)
                .join(dl.table, dl.table.c.table_id == files.c.table_id)
                .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
            )
            found.update(connection.execute(query).scalars())
        found.update(connection.execute(sa.select(dl.scheduled_for_deletion.c.path)).scalars())
    return found


def open_transactions(lake: tailrace.Lake) -> int:
    with lake._runtime.database.read() as connection:
        query = sa.select(sa.func.count()).select_from(t.transaction)
        return int(connection.execute(query).scalar_one())


def check_readers(place: LakeArgs, lake: tailrace.Lake, expected: Rows) -> None:
    """We and DuckDB read the same, now and at the snapshots before."""
    assert rows(lake) == expected
    with duck.attach(place) as reader:
        query = "SELECT schema_name || '.' || table_name FROM duckdb_tables()"
        assert {name for (name,) in reader.execute(query).fetchall()} == set(expected)
        for name in ("main.account", "main.log"):
            assert bag(duck.read(reader, name)) == expected[name]
            for at in range(lake.snapshot - 2, lake.snapshot + 1):
                assert bag(duck.read(reader, name, at)) == bag(lake.table(name).to_arrow(at))


def check_sweep(place: LakeArgs, lake: tailrace.Lake, clock: MovableClock) -> int:
    """The sweep waits for the transaction's time, then deletes what nobody references."""
    there, needed = objects(place), referenced(lake)
    assert needed <= there
    waiting = open_transactions(lake)
    if waiting:
        assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
        assert objects(place) == there
    clock.advance(tailrace.Configuration().transaction_timeout + timedelta(seconds=1))
    orphans = there - needed
    assert lake.sweep() == tailrace.Sweep(deleted=len(orphans), expired=waiting)
    assert objects(place) == needed
    assert open_transactions(lake) == 0
    return len(orphans)


def check_writable(lake: tailrace.Lake, expected: Rows) -> None:
    number = next(_numbers)
    ids = [10 * number + i for i in (0, 1, 2)]
    lake.table("account").append([{"id": i, "v": "old"} for i in ids])
    before = expected | {"main.account": [*expected["main.account"], *((i, "old") for i in ids)]}
    victim.several_writes(lake, number)
    assert rows(lake) == after(before, number)


def test_the_steps_are_these(place: LakeArgs) -> None:
    """So that no step is left out below."""
    seen: list[str] = []
    number = next(_numbers)
    with place.connect(on_step=seen.append) as watched:
        ids = range(10 * number, 10 * number + 9)
        watched.table("account").append([{"id": i, "v": "old"} for i in ids])
        watched.table("account").delete([{"id": 10 * number + 2}])
        del seen[:]
        victim.several_writes(watched, number)
    assert seen == STEPS


@pytest.mark.parametrize("place_in_steps", range(len(STEPS)), ids=lambda i: f"{i}-{STEPS[i]}")
def test_a_kill_at_any_step_leaves_all_or_nothing(
    place: LakeArgs, lake: tailrace.Lake, clock: MovableClock, number: int, place_in_steps: int
) -> None:
    step = STEPS[place_in_steps]
    before, snapshot = rows(lake), lake.snapshot
    nth = STEPS[: place_in_steps + 1].count(step)
    kill(place, victim.several_writes, number, step=step, nth=nth)
    done = step == "committed"
    expected = after(before, number) if done else before
    assert lake.snapshot == (snapshot + 1 if done else snapshot)
    assert open_transactions(lake) == (0 if done else 1)
    check_readers(place, lake, expected)
    orphans = check_sweep(place, lake, clock)
    objects_until = {"registered": 0, "files written": nth, "delete file written": 4 + nth}
    assert orphans == (0 if done else objects_until.get(step, OBJECTS))
    check_writable(lake, expected)


@pytest.mark.parametrize("nth", range(1, OBJECTS + 1))
def test_a_kill_inside_an_object_leaves_nothing(
    place: LakeArgs, lake: tailrace.Lake, clock: MovableClock, number: int, nth: int
) -> None:
    before, snapshot = rows(lake), lake.snapshot
    kill(place, victim.several_writes, number, step=victim.HALF_WRITTEN, nth=nth)
    assert lake.snapshot == snapshot
    assert rows(lake) == before
    assert check_sweep(place, lake, clock) == nth
    check_writable(lake, before)


def test_a_kill_while_giving_up_leaves_nothing(
    place: LakeArgs, lake: tailrace.Lake, clock: MovableClock
) -> None:
    before, snapshot = rows(lake), lake.snapshot
    kill(place, victim.give_up, next(_numbers), step="given up", nth=1)
    assert lake.snapshot == snapshot
    assert rows(lake) == before
    assert open_transactions(lake) == 0
    assert check_sweep(place, lake, clock) == 1


@pytest.mark.parametrize("step", ["transactions expired", "garbage deleted"])
def test_a_sweep_that_is_killed_is_finished_by_the_next(
    place: LakeArgs, lake: tailrace.Lake, clock: MovableClock, number: int, step: str
) -> None:
    kill(place, victim.several_writes, number, step="rows written", nth=1)
    before = rows(lake)
    # Aged in the catalog, because the sweep that is killed goes by the machine's clock.
    with lake._runtime.database.write() as connection:
        connection.execute(
            sa.update(t.transaction).values(heartbeat_at=clock.now() - timedelta(days=1))
        )
    kill(place, victim.sweep, step=step, nth=1)
    assert open_transactions(lake) == 0
    assert check_sweep(place, lake, clock) == (OBJECTS if step == "transactions expired" else 0)
    assert rows(lake) == before


def test_a_kill_while_a_lake_is_created_leaves_none(catalog: str, new_lake_args: Any) -> None:
    args = new_lake_args()
    child = children.start(victim.create_and_die, args)
    assert children.join(child) == -signal.SIGKILL
    with args.connect() as lake:
        assert lake.snapshot == 0
        lake.create_table("t", {"id": "bigint"}).append([{"id": 1}])
        assert column(lake.table("t").to_arrow(), "id") == [1]
