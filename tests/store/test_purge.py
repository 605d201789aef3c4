"""The purge removes what nobody needs any more, and nothing else."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.propagation.maintenance import Executor
from tailrace.propagation.task_types import PURGE, purge_of
from tailrace.store import tables as t
from tailrace.store import tasks
from tests.support import duck
from tests.support.clock import MovableClock
from tests.support.rows import column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.store.runtime import Runtime
    from tests.support.lakes import LakeArgs

RETENTION, GRACE = timedelta(days=7), timedelta(hours=1)
COLUMNS = {"id": "bigint", "v": "string"}
MOMENT = timedelta(minutes=1)  # more than any test takes


def some(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": "a"} for number in ids]


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(lake_args: LakeArgs, clock: MovableClock) -> Iterator[tailrace.Lake]:
    """A lake with a table `t` that holds 1 to 5 in one file."""
    with lake_args.connect(clock=clock) as opened:
        opened.create_table("t", COLUMNS, primary_key="id").append(some(1, 2, 3, 4, 5))
        yield opened


def objects(lake: tailrace.Lake) -> set[str]:
    return set(lake._runtime.storage.list())


def count(lake: tailrace.Lake, table: sa.Table) -> int:
    with lake._runtime.database.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def cleanings(lake: tailrace.Lake) -> int:
    """How many tables are still to be cleaned."""
    query = sa.select(sa.func.count()).where(t.task.c.type == "clean")
    with lake.runtime.database.read() as connection:
        return int(connection.execute(query).scalar_one())


def did(done: tailrace.Purge) -> tuple[int, int, int, int]:
    return done.horizon, done.snapshots, done.files, done.objects


def test_snapshots_are_kept_for_the_retention_and_then_until_there_is_a_newer_old_one(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = lake.table("t")
    first = lake.snapshot
    clock.advance(RETENTION + MOMENT)
    second = table.append(some(6))
    assert did(lake.purge()) == (first, first, 0, 0)  # what time travel finds 7 days ago
    assert column(table.to_arrow(at=first), "id") == [1, 2, 3, 4, 5]
    clock.advance(RETENTION - MOMENT)
    assert not lake.purge().did_something
    clock.advance(2 * MOMENT)
    assert did(lake.purge()) == (second, 1, 0, 0)
    with pytest.raises(tailrace.NotFoundError, match=f"{first} was purged: this lake has {second}"):
        table.to_arrow(at=first)
    with pytest.raises(tailrace.NotFoundError, match=f"{first} was purged"):
        table.changes(first)
    with pytest.raises(tailrace.NotFoundError, match=f"{first} was purged"):
        lake.tables(at=first)
    assert column(table.to_arrow(), "id") == [1, 2, 3, 4, 5, 6]
    assert [done.snapshots for done in lake.purges()] == [1, first]


def test_objects_outlive_their_files_for_readers_that_still_run(
    lake: tailrace.Lake, clock: MovableClock, lake_args: LakeArgs
) -> None:
    table = lake.table("t")
    table.delete(some(1))
    table.delete(some(2, 3, 4, 5))  # ends the data file and its delete file
    table.append(some(9))
    there = objects(lake)
    assert len(there) == 3
    clock.advance(RETENTION + MOMENT)
    done = lake.purge()
    assert did(done) == (lake.snapshot, lake.snapshot, 2, 0)
    assert done.bytes > 0
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
    clock.advance(GRACE - MOMENT)
    assert not lake.purge().did_something
    assert objects(lake) == there
    clock.advance(2 * MOMENT)
    assert did(lake.purge()) == (lake.snapshot, 0, 0, 2)
    assert len(objects(lake)) == 1
    assert not lake.purge().did_something
    assert [(done.files, done.objects) for done in lake.purges()] == [(0, 2), (2, 0)]
    with duck.attach(lake_args) as connection:
        assert column(duck.read(connection, "t"), "id") == [9]


def test_the_sweep_deletes_what_was_purged_too_after_its_time(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    lake.drop_table("t")
    clock.advance(RETENTION + MOMENT)
    assert lake.purge().files == 1
    clock.advance(GRACE + MOMENT)
    assert lake.sweep() == tailrace.Sweep(deleted=1, expired=0)
    assert objects(lake) == set()


def test_of_a_dropped_table_and_schema_nothing_is_left(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    tables = [dl.table, dl.column, t.own_table, t.own_column, dl.table_stats, dl.schema, dl.tag]
    tables += [dl.data_file, dl.delete_file, t.own_file, dl.file_column_stats, dl.schema_versions]
    before = {table.name: count(lake, table) for table in tables}
    lake.create_schema("s")
    gone = lake.create_table("s.gone", {**COLUMNS, "n": "struct<a: int>"}, primary_key="id")
    gone.append([{"id": 1, "v": "a", "n": {"a": 1}}, {"id": 2, "v": "a", "n": None}])
    gone.delete([{"id": 1}])
    lake.drop_table("s.gone")
    lake.drop_schema("s")
    clock.advance(RETENTION + MOMENT)
    assert lake.purge().files == 2
    assert {table.name: count(lake, table) for table in tables} == before
    assert cleanings(lake) == 0
    assert lake.tables() == ["main.t"]


def test_ids_and_names_of_columns_that_were_dropped_long_ago_are_not_given_again(
    lake: tailrace.Lake, clock: MovableClock, lake_args: LakeArgs
) -> None:
    """They are still in files: a new column must not show what an old one held."""
    table = lake.table("t")
    table.rename_column("v", "w")
    table.rename_column("w", "x")
    table.drop_column("x")
    clock.advance(RETENTION + MOMENT)
    before = count(lake, dl.column)
    lake.purge()
    assert count(lake, dl.column) == before - 2  # two of the four that there were
    table.add_column("v", "string")
    table.upsert([{"id": 1, "v": "new"}])
    expected = [(1, "new"), *((n, None) for n in range(2, 6))]
    rows = table.to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == expected
    with duck.attach(lake_args) as connection:
        theirs = duck.read(connection, "t").to_pylist()
    assert sorted((row["id"], row["v"]) for row in theirs) == expected


def test_a_running_transaction_keeps_what_it_reads(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    with lake.transaction() as txn:
        base = txn.base
        txn.table("t").append(some(6))
        lake.table("t").append(some(7))
        clock.advance(RETENTION + MOMENT)
        lake._heartbeat.beat()
        done = lake.purge()
        assert done.horizon == base
        assert done.held_by is not None
        assert done.held_by.startswith("a transaction that began")
        assert column(txn.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 6]
    assert lake.purge().horizon == base + 1  # what the retention asks for
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 6, 7]


def test_a_transaction_whose_snapshot_was_purged_reads_nothing_wrong(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    """One that has not written is not known to the purge, and one that is silent is dead."""
    reader, silent = lake.transaction(), lake.transaction()
    silent.table("t").append(some(6))
    lake._heartbeat.forget(silent._work.id)
    lake.table("t").delete(some(1, 2, 3, 4, 5))
    lake.table("t").append(some(7))
    clock.advance(RETENTION + MOMENT)
    assert lake.purge().horizon == lake.snapshot
    for late in (reader, silent):
        with pytest.raises(tailrace.ConflictError, match="began so long ago"):
            late.list_tables()
    with pytest.raises(tailrace.ConflictError, match="began so long ago"):
        reader.table("t")
    assert column(lake.table("t").to_arrow(), "id") == [7]


def test_a_purge_in_the_middle_of_a_read_takes_nothing_from_it(
    lake: tailrace.Lake, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table("t")
    then = lake.snapshot
    table.delete(some(1, 2, 3, 4, 5))
    clock.advance(RETENTION + MOMENT)
    mirror = lake.runtime.mirror
    find = mirror.data_files
    done: list[tailrace.Purge] = []

    def find_and_purge(*arguments: Any) -> Any:
        files = find(*arguments)
        done.append(lake.purge())
        return files

    monkeypatch.setattr(mirror, "data_files", find_and_purge)
    assert column(table.to_arrow(at=then), "id") == [1, 2, 3, 4, 5]
    assert done[0].files == 1
    with pytest.raises(tailrace.NotFoundError, match="was purged"):
        table.to_arrow(at=then)


def test_a_purge_that_is_stopped_goes_on_at_the_next(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    for number in range(3):
        lake.create_table(f"t{number}", COLUMNS).append(some(1))
        lake.drop_table(f"t{number}")
    clock.advance(RETENTION + MOMENT)
    stop = threading.Event()
    stop.set()
    assert purged(lake, lake.runtime, stop) is None
    assert lake.snapshots()[0].id == lake.snapshot
    assert cleanings(lake) == 3
    assert did(lake.purge()) == (lake.snapshot, 0, 3, 0)
    assert cleanings(lake) == 0


def purged(lake: tailrace.Lake, runtime: Runtime, stop: threading.Event) -> tailrace.Purge | None:
    """A purge with other settings, and which may be stopped; None if it was."""
    executor = Executor(runtime, lake._heartbeat, "here", lambda _: {"here"})
    with runtime.database.lock() as connection:
        (entered,) = tasks.enter(connection, [PURGE], runtime.clock.now())
    assert entered.id is not None
    task = executor.claim(only=[entered.id])
    assert task is not None
    result = executor.run(task, stop=stop)
    return None if result is None else purge_of(result)


class Waits(threading.Event):
    """Notes how long it is waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout or 0.0)
        return False


def test_a_purge_keeps_to_its_rate(lake: tailrace.Lake, clock: MovableClock) -> None:
    slow = replace(lake._runtime, settings=tailrace.Settings(purge_rate=2))
    table = lake.create_table("many", COLUMNS)
    for number in range(6):
        table.append(some(number))
    lake.drop_table("many")
    clock.advance(RETENTION + MOMENT)
    first = purged(lake, slow, Waits())
    assert first is not None
    assert first.files == 6
    clock.advance(GRACE + MOMENT)
    waits = Waits()
    second = purged(lake, slow, waits)
    assert second is not None
    assert second.objects == 6
    # Two at a time: after four, two seconds must have passed, and after six, three.
    assert [round(seconds) for seconds in waits.noted] == [2, 3]


def test_a_purge_with_nothing_to_do_asks_two_questions(lake: tailrace.Lake) -> None:
    asked: list[str] = []
    engine = lake._runtime.database.engine

    here = threading.get_ident()

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.get_ident() == here:  # the heartbeat asks, too
            asked.append(statement)

    lake.purge()
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        lake.purge()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    # What is kept for how long, and whether something is older.
    assert len([statement for statement in asked if statement != "BEGIN"]) == 2


def test_two_purges_at_once_count_everything_once(
    lake_args: LakeArgs, lake: tailrace.Lake, clock: MovableClock
) -> None:
    for number in range(5):
        lake.create_table(f"t{number}", COLUMNS).append(some(1))
        lake.drop_table(f"t{number}")
    clock.advance(RETENTION + MOMENT)
    done: list[tailrace.Purge] = []
    with lake_args.connect(clock=clock) as other:
        threads = [
            threading.Thread(target=lambda lake=one: done.append(lake.purge()))
            for one in (lake, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(one.files for one in done) == 5
    assert sum(one.snapshots for one in done) == lake.snapshot
    clock.advance(GRACE + MOMENT)
    assert lake.purge().objects == 5
    assert len(objects(lake)) == 1


def scheduled(lake: tailrace.Lake) -> set[str]:
    with lake._runtime.database.read() as connection:
        return set(connection.execute(sa.select(dl.scheduled_for_deletion.c.path)).scalars())


def test_what_a_transaction_writes_and_does_not_commit_is_deleted_like_what_was_replaced(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    with lake.transaction() as transaction:
        table = transaction.table("t")
        table.append(some(6, 7))
        table.delete(some(6, 7))  # the file's last rows
        table.append(some(8))
        with pytest.raises(tailrace.InvalidError, match="exist already"):
            table.append(some(9, 1))  # 1 is there already
        transaction.create_table("brief", COLUMNS).append(some(1))
        transaction.drop_table("brief")
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 8]
    unused = scheduled(lake)
    assert unused
    assert unused < objects(lake)
    assert len(objects(lake) - unused) == 2  # 1 to 5, and 8
    clock.advance(GRACE + MOMENT)
    assert lake.purge().objects == len(unused)
    assert len(objects(lake)) == 2
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 8]


def test_a_transaction_that_undid_all_it_did_leaves_no_object(lake: tailrace.Lake) -> None:
    before = objects(lake)
    with lake.transaction() as transaction:
        transaction.create_table("brief", COLUMNS).append(some(1))
        transaction.drop_table("brief")
    assert objects(lake) == before
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
