"""The catalog in memory says what the catalog says, whoever changes it, and asks it seldom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.errors import ConflictError, NotFoundError, UnavailableError
from tailrace.store import lookup, mirror, table_files
from tailrace.store.mirror import Mirror
from tests.support import counted, seeds
from tests.support.clock import MovableClock
from tests.support.compaction import compact
from tests.support.lakes import configure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.store.files import DataFile
    from tests.support.lakes import LakeArgs

COLUMNS = {"id": "bigint", "v": "string"}
NAMES = ("a", "b", "c")


def some(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": f"v{number}"} for number in ids]


# --- equal to the catalog ---------------------------------------------------------------------


class History:
    """Random changes of a lake that two processes have open, and what is asked in between."""

    def __init__(self, args: LakeArgs, seed: int) -> None:
        self.random, self.clock = Random(seed), MovableClock()
        self.lakes = [args.connect(clock=self.clock) for _ in range(2)]
        configure(self.lakes[0], snapshot_retention=timedelta(hours=1))
        self.columns = 0
        # Some ask all the time, others after many changes.
        self.asks = self.random.choice([0.6, 0.1])

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def change(self) -> None:
        """One change, by either process."""
        lake = self.random.choice(self.lakes)
        others = [self.both, self.table, self.alter, self.view, self.purge]
        change = self.random.choice([self.rows] * 5 + [self.compacted] * 2 + others)
        # What it needs may not be there, or there already.
        with suppress(NotFoundError, tailrace.InvalidError):
            change(lake)

    def rows(self, lake: tailrace.Lake) -> None:
        table = lake.table(self.random.choice(NAMES))
        ids = self.random.sample(range(20), self.random.randint(1, 6))
        with lake.transaction() as txn:
            for _ in range(self.random.randint(1, 2)):
                made = txn.table(table.name)
                if self.random.random() < 0.6:
                    made.upsert([{"id": i, "v": str(self.random.random())} for i in ids])
                else:
                    made.delete([{"id": i} for i in ids])

    def both(self, lake: tailrace.Lake) -> None:
        """One process commits while the other is about to."""
        name, number = self.random.choice(NAMES), self.random.randrange(1000, 10**9)
        (other,) = (one for one in self.lakes if one is not lake)
        with lake.transaction() as txn:
            txn.table(name).append(some(number))
            other.table(name).append(some(number + 1))

    def compacted(self, lake: tailrace.Lake) -> None:
        """One process compacts, and now and then the other writes meanwhile."""
        name, (other,) = self.random.choice(NAMES), (one for one in self.lakes if one is not lake)

        def some(files: Sequence[DataFile]) -> list[DataFile]:
            return self.random.sample(files, self.random.randint(0, len(files)))

        compact(lake, name, some, lambda: self.random.random() < 0.4 and self.rows(other))

    def table(self, lake: tailrace.Lake) -> None:
        name = self.random.choice(NAMES)
        with lake.transaction() as txn:
            if self.random.random() < 0.5:
                txn.drop_table(name)
            if self.random.random() < 0.7:
                txn.create_table(name, COLUMNS, primary_key="id").append(some(1, 2, 3))

    def alter(self, lake: tailrace.Lake) -> None:
        table = lake.table(self.random.choice(NAMES))
        extra = [name for name in table.columns if name not in COLUMNS]
        self.columns += 1
        if not extra or self.random.random() < 0.4:
            table.add_column(f"c{self.columns}", "int")
        elif self.random.random() < 0.5:
            table.drop_column(self.random.choice(extra))
        else:
            table.rename_column(self.random.choice(extra), f"c{self.columns}")

    def view(self, lake: tailrace.Lake) -> None:
        with lake.transaction() as txn:
            if txn.find_view("seen") is None:
                txn.create_view("seen", "SELECT 1 AS x")
            elif self.random.random() < 0.5:
                txn.replace_view("seen", f"SELECT {self.random.randint(2, 9)} AS x")
            else:
                txn.drop_view("seen")

    def purge(self, lake: tailrace.Lake) -> None:
        self.clock.advance(timedelta(minutes=self.random.choice([10, 50, 70])))
        lake.purge()

    def compare(self) -> int:
        """Ask both mirrors about some snapshots; returns how many answers were compared."""
        compared = 0
        for lake in self.lakes:
            with lake.runtime.database.read_at_once() as connection:
                low, high = lookup.oldest_snapshot(connection), lookup.newest_snapshot(connection)
                assert lake.runtime.mirror.newest() == high
                moments = [self.random.randint(low, high) for _ in range(3)]
                for at in self.random.choice([[], [high], moments, range(low, high + 1)]):
                    since = self.random.randint(low, at)
                    compared += compare(connection, lake.runtime.mirror, since, at)
        return compared


def compare(connection: sa.Connection, held: Mirror, since: int, at: int) -> int:
    """What a mirror says of a snapshot, and of what changed until then."""
    compared = 0
    for name in (*NAMES, "none"):
        table = lookup.find_table(connection, "main", name, at)
        assert held.find_table("main", name, at) == table
        assert held.find_table("main", name, at, "other") is None
        compared += 1
        if table is None:
            continue
        assert held.table_by_id(table.id, at) == table
        ids = [column.id for column in table.columns]
        assert held.data_files(table, at) == table_files.data_files(connection, table, at)
        assert held.file_stats(table, ids[:1], at) == table_files.file_stats(
            connection, table, ids[:1], at
        )
        assert held.file_stats(table, ids, at) == table_files.file_stats(connection, table, ids, at)
        assert held.files_begun(table, since, at) == table_files.files_begun(
            connection, table, since, at
        )
        assert held.files_with_deletes(table, since, at) == table_files.files_with_deletes(
            connection, table, since, at
        )
        compared += 6
    assert held.find_view("main", "seen", at) == lookup.find_view(connection, "main", "seen", at)
    return compared + 1


def check_history(args: LakeArgs, seed: int, changes: int) -> None:
    history = History(args, seed)
    try:
        for _ in range(changes):
            history.change()
            if history.random.random() < history.asks:
                counted.count("answers of a mirror", history.compare())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        history.close()


@pytest.mark.parametrize("number", range(4))
def test_it_says_what_the_catalog_says(lake_args: LakeArgs, number: int) -> None:
    check_history(lake_args, seeds.seed() + number, 60)


@pytest.mark.parametrize("number", range(2))
def test_so_it_does_when_it_holds_little(
    lake_args: LakeArgs, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_MOST_FILES", 12)
    monkeypatch.setattr(mirror, "_MOST_CHANGED", 2)
    monkeypatch.setattr(mirror, "_MOST_SPANS", 2)
    monkeypatch.setattr(table_files, "_ENDED", 0)
    check_history(lake_args, seeds.seed() + 100 + number, 60)


@pytest.mark.stress
@pytest.mark.parametrize("number", range(20))
def test_it_says_what_the_catalog_says_for_long(lake_args: LakeArgs, number: int) -> None:
    check_history(lake_args, seeds.seed() + 1000 + number, 400)


def check_all(lake: tailrace.Lake) -> None:
    """Ask about every snapshot."""
    held = lake.runtime.mirror
    for at in range(held.newest() + 1):
        with lake.runtime.database.read_at_once() as connection:
            compare(connection, held, max(0, at - 1), at)


def test_files_that_have_ended_are_let_go_of(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_ENDED", 0)
    with sqlite_lake_args.connect() as lake, sqlite_lake_args.connect() as other:
        lake.create_table("a", COLUMNS, primary_key="id")
        for number in range(6):
            other.table("a").upsert([{"id": 1, "v": str(number)}])  # ends the file before
            check_all(lake)
        table, held = lake.table("a").info, lake.runtime.mirror
        assert held._files[table.id].weight < 10  # of six files, and their statistics


def test_what_a_commit_did_is_taken_over_only_by_who_knows_all_before(
    sqlite_lake_args: LakeArgs,
) -> None:
    with sqlite_lake_args.connect() as lake:
        lake.create_table("a", COLUMNS, primary_key="id").append(some(1))
        held, table = lake.runtime.mirror, lake.table("a").info
        first = held.data_files(table, held.newest())
        files = held._files[table.id]
        newer = replace(first[0], id=7, begin=9)
        files.changed = 8  # by another process
        files.learn(9, [newer])
        assert files.covered < 8
        files.changed = 0
        files.learn(9, [newer])
        assert files.covered == 9
        assert files.at(9) == [*first, newer]
        files.learn(5, [replace(newer, end=5)])  # what is known by now is newer
        assert files.covered == 9
        assert files.at(9) == [*first, newer]


def test_a_file_that_has_ended_and_was_purged_before_anybody_asked_is_gone(
    lake_args: LakeArgs,
) -> None:
    clock = MovableClock()
    with lake_args.connect(clock=clock) as lake, lake_args.connect(clock=clock) as other:
        configure(lake, snapshot_retention=timedelta(hours=1))
        lake.create_table("a", COLUMNS, primary_key="id").append(some(1))
        lake.table("a").to_arrow()
        other.table("a").upsert(some(1))
        last = lake.snapshot  # it is told of the change, and does not ask what it was
        clock.advance(timedelta(hours=2))
        purged = other.purge()
        assert (purged.horizon, purged.files) == (last, 1)
        assert lake.table("a").to_arrow().to_pylist() == some(1)
        check_newest(lake)


def test_what_another_process_has_purged_is_an_error_or_right(lake_args: LakeArgs) -> None:
    clock = MovableClock()
    with lake_args.connect(clock=clock) as lake, lake_args.connect(clock=clock) as other:
        configure(lake, snapshot_retention=timedelta(hours=1))
        for name in ("a", "b"):
            other.create_table(name, COLUMNS, primary_key="id").append(some(1))
        held, then = lake.runtime.mirror, lake.snapshot
        a, b = (held.find_table("main", name, then) for name in ("a", "b"))
        assert a is not None
        assert b is not None
        known = held.data_files(a, then)
        for name in ("a", "b"):
            other.table(name).upsert(some(1))
        clock.advance(timedelta(hours=2))
        assert other.purge().horizon > then
        assert held.data_files(a, then) == known
        with pytest.raises(NotFoundError, match="was purged"):
            held.data_files(b, then)  # it is asked for only now


# --- seldom asked ------------------------------------------------------------------------------


@contextmanager
def statements(lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All that this thread asks of the catalog meanwhile; there is one for heartbeats, too."""
    database, asked, own = lake.runtime.database, [], threading.get_ident()
    plain = database.rows

    def note(statement: Any) -> None:
        if threading.get_ident() == own:
            asked.append(statement)

    def rows(statement: Any, params: Any) -> list[Any]:
        note(statement)
        return plain(statement, params)

    def execute(*arguments: Any) -> None:
        note(arguments[2])

    with monkeypatch.context() as patch:
        patch.setattr(database, "rows", rows)
        sa.event.listen(database.engine, "before_cursor_execute", execute)
        try:
            yield asked
        finally:
            sa.event.remove(database.engine, "before_cursor_execute", execute)


def test_what_did_not_change_is_not_read_again(
    lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake_args.connect() as lake, lake_args.connect() as other:
        table = lake.create_table("t", COLUMNS, primary_key="id")
        lake.create_table("u", COLUMNS).append(some(1))
        table.append(some(1, 2))
        ids, held = lake.table("t").info.key, lake.runtime.mirror

        def read() -> list[Any]:
            at = held.newest()
            info = held.find_table("main", "t", at, "default")
            assert info is not None
            return [held.data_files(info, at), held.file_stats(info, ids, at)]

        first = read()
        with statements(lake, monkeypatch) as asked:
            assert read() == first
        assert len(asked) == 1  # is there a new snapshot?
        other.table("u").append(some(2))
        with statements(lake, monkeypatch) as asked:
            assert read() == first
        assert len(asked) == 1  # there is, but this table did not change
        other.table("t").append(some(3))
        with statements(lake, monkeypatch) as asked:
            second = read()
        assert len(second[0]) == len(first[0]) + 1
        # The new file, and its statistics.
        assert len([text for text in asked if not str(text).startswith("BEGIN")]) == 3
        held.check(first[0][0].begin)


def test_it_does_not_trust_itself_for_long(sqlite_lake_args: LakeArgs) -> None:
    """After half of the least time that objects are kept for readers, snapshots may be gone."""
    with sqlite_lake_args.connect() as lake:
        now = 0.0
        held = Mirror(lake.runtime.database, now=lambda: now)
        lake.create_table("t", COLUMNS)
        last = held.newest()
        with lake.runtime.database.lock() as connection:
            connection.execute(sa.delete(dl.snapshot).where(dl.snapshot.c.snapshot_id < last))
        held.check(last - 1)
        now = 31.0
        with pytest.raises(NotFoundError, match="was purged"):
            held.check(last - 1)


# --- stale, broken, large ----------------------------------------------------------------------


def test_a_stale_one_leads_to_a_conflict_and_never_to_wrong_rows(
    lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is told of nothing new commits nothing that contradicts it."""
    random, compacts = Random(seeds.seed()), Random(seeds.seed() + 1)
    with lake_args.connect() as stale, lake_args.connect() as other:
        stale.create_table("t", COLUMNS, primary_key="id").append(some(*range(5)))
        expected = {row["id"]: row["v"] for row in some(*range(5))}
        held = stale.runtime.mirror
        held.newest()
        conflicts = 0
        for number in range(40):
            key, value = random.randrange(8), f"n{number}"
            monkeypatch.setattr(held, "_follow", lambda: held._head)
            for lake in random.sample([stale, other], 2):
                if compacts.random() < 0.2:
                    compact(other, "t")
                try:
                    if random.random() < 0.7:
                        lake.table("t").upsert([{"id": key, "v": value}])
                        expected[key] = value
                    else:
                        lake.table("t").delete([{"id": key}])
                        expected.pop(key, None)
                except ConflictError:
                    conflicts += 1
            if random.random() < 0.3:
                monkeypatch.undo()
                held.newest()
            rows = other.table("t").to_arrow().to_pylist()
            assert {row["id"]: row["v"] for row in rows} == expected
            assert len(rows) == len(expected)
        assert conflicts > 5


def test_a_catalog_that_does_not_answer_leaves_it_as_it_was(
    lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seeds.seed())
    history = History(lake_args, seeds.seed())
    database = history.lakes[0].runtime.database
    plain, failures = database.rows, 0

    def rows(statement: Any, params: Any) -> list[Any]:
        nonlocal failures
        answer = plain(statement, params)
        if random.random() < 0.4:
            failures += 1
            raise UnavailableError("the catalog did not answer")
        return answer

    try:
        for _ in range(60):
            history.change()
            with monkeypatch.context() as patch:
                patch.setattr(database, "rows", rows)
                _until_answered(lambda: check_newest(history.lakes[0]))
            history.compare()
    finally:
        history.close()
    assert failures > 20


def check_newest(lake: tailrace.Lake) -> None:
    held = lake.runtime.mirror
    at = held.newest()
    with lake.runtime.database.read_at_once() as connection:
        compare(connection, held, at, at)


def _until_answered(ask: Callable[[], None]) -> None:
    while True:
        try:
            return ask()
        except UnavailableError:
            pass


def test_a_catalog_that_was_restored_is_read_anew(sqlite_lake_args: LakeArgs) -> None:
    """A number that is given again is of another snapshot."""
    with sqlite_lake_args.connect() as lake:
        held, database = lake.runtime.mirror, lake.runtime.database
        lake.create_table("t", COLUMNS).append(some(1))
        with database.read() as connection:
            before = _rows_of_the_catalog(connection)
        lake.table("t").append(some(2))
        last = held.newest()
        table = lake.table("t").info
        assert len(held.data_files(table, last)) == 2
        with database.lock() as connection:
            for each, rows in before.items():
                connection.execute(sa.delete(each))
                if rows:
                    connection.execute(sa.insert(each), rows)
        with lake.transaction() as txn:
            txn.table("t").append(some(3, 4, 5))
        assert held.newest() == last
        with database.read() as connection:
            compare(connection, held, last, last)
        (_, newest) = held.data_files(table, last)
        assert newest.rows == 3


def _rows_of_the_catalog(connection: sa.Connection) -> dict[sa.Table, list[dict[str, Any]]]:
    return {
        table: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        for part in (dl.metadata, mirror.t.metadata)
        for table in part.sorted_tables
    }


def _many_tables(lake: tailrace.Lake, count: int) -> list[tailrace.store.schema.TableInfo]:
    """Enter tables with a file each, as so many commits would have."""
    lake.create_table("t", COLUMNS, primary_key="id").append(some(1))
    info, like = lake.table("t").info, lake.runtime.mirror
    (file,) = like.data_files(info, like.newest())
    numbers = range(1_000_000, 1_000_000 + count)
    with lake.runtime.database.lock() as connection:
        for table, column, values in (
            (dl.data_file, "data_file_id", {"table_id": None}),
            (mirror.t.own_file, "data_file_id", {}),
        ):
            row = dict(
                connection.execute(sa.select(table).where(table.c.data_file_id == file.id))
                .mappings()
                .one()
            )
            connection.execute(
                sa.insert(table),
                [row | {column: n} | dict.fromkeys(values, n) for n in numbers],
            )
    return [replace(info, id=n) for n in numbers]


def check_memory(lake: tailrace.Lake, count: int) -> None:
    held, last = lake.runtime.mirror, 0
    for table in _many_tables(lake, count):
        last = held.newest()
        assert len(held.data_files(table, last)) == 1
    assert held._weight <= mirror._MOST_FILES
    assert len(held._files) <= mirror._MOST_FILES // 2
    assert held._weight == sum(files.weight for files in held._files.values())


def test_its_memory_is_bounded(sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "_MOST_FILES", 100)
    with sqlite_lake_args.connect() as lake:
        check_memory(lake, 500)


@pytest.mark.stress
def test_its_memory_is_bounded_with_a_hundred_thousand_tables(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as lake:
        check_memory(lake, 100_000)
