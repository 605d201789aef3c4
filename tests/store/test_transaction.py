"""Transactions: they see their own writes, commit at once or not at all, and the first one wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tailrace.store.workspace import Commit
from tests.support import duck
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.lakes import LakeArgs

COLUMNS = {"id": "bigint", "v": "string"}


def some(*ids: int, v: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in ids]


@pytest.fixture
def keyed(lake: tailrace.Lake) -> tailrace.Table:
    """A table with a key that holds 1, 2, 3 in one file."""
    table = lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1, 2, 3))
    return table


@pytest.fixture
def other(lake: tailrace.Lake, lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    """The same lake, opened once more."""
    with lake_args.connect() as second:
        yield second


def open_transactions(lake: tailrace.Lake) -> int:
    with lake._runtime.database.read() as connection:
        query = sa.select(sa.func.count()).select_from(t.transaction)
        return int(connection.execute(query).scalar_one())


def objects(lake: tailrace.Lake) -> set[str]:
    return set(lake._runtime.storage.list())


# --- it sees its own writes -------------------------------------------------------------------


def test_a_transaction_sees_its_own_writes_and_nobody_else_does(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    before = lake.snapshot
    with lake.transaction() as txn:
        mine = txn.table("t")
        mine.append(some(4, 5))
        assert column(mine.to_arrow(), "id") == [1, 2, 3, 4, 5]
        mine.upsert(some(2, 5, 6, v="b"))
        changed = [(1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "b"), (6, "b")]
        assert bag(mine.to_arrow()) == changed
        mine.delete(some(1, 4, 6, 99))
        assert bag(mine.to_arrow()) == [(2, "b"), (3, "a"), (5, "b")]
        # What was deleted in the transaction may be appended again, and changed once more.
        mine.append(some(1, 4, v="c"))
        mine.upsert(some(4, v="d"))
        assert bag(mine.to_arrow()) == [(1, "c"), (2, "b"), (3, "a"), (4, "d"), (5, "b")]
        assert column(keyed.to_arrow(), "id") == [1, 2, 3]
        assert lake.snapshot == before
    assert bag(keyed.to_arrow()) == [(1, "c"), (2, "b"), (3, "a"), (4, "d"), (5, "b")]
    assert lake.snapshot == txn.snapshot == before + 1
    assert column(keyed.to_arrow(at=before), "id") == [1, 2, 3]


def test_a_transaction_sees_its_own_writes_through_spark(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    plain = sqlite_lake.create_table("p", COLUMNS)
    plain.append(some(1, 2, 3))
    with sqlite_lake.transaction() as txn:
        mine = txn.table("p")
        mine.append(some(3, 4))
        mine.delete("id = 3 OR id = 1")
        assert column(mine.to_df().toArrow(), "id") == [2, 4]
        mine.delete("v = 'a' AND id > 3")
    assert column(plain.to_df().toArrow(), "id") == [2]
    with duck.attach(sqlite_lake_args) as reader:
        assert column(duck.read(reader, "p"), "id") == [2]


def test_create_fill_alter_and_drop_in_one_transaction(
    lake: tailrace.Lake, keyed: tailrace.Table, lake_args: LakeArgs
) -> None:
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.create_schema("s")
        made = txn.create_table("s.new", {"id": "int", "old": "int", "gone": "string"})
        made.append([{"id": 1, "old": 10, "gone": "x"}])
        made.add_column("note", "string")
        made.rename_column("old", "renamed")
        made.widen_column("renamed", "bigint")
        made.drop_column("gone")
        made.append([{"id": 2, "renamed": 2**40, "note": "n"}])
        assert bag(made.to_arrow()) == [(1, 10, None), (2, 2**40, "n")]
        txn.create_table("s.brief", COLUMNS).append(some(1))
        txn.drop_table("s.brief")
        txn.table("t").add_column("w", "double")
        txn.table("t").upsert([{"id": 1, "v": "z", "w": 0.5}])
        with pytest.raises(tailrace.NotFoundError, match=r"s\.brief"):
            txn.table("s.brief")
    assert lake.snapshot == before + 1
    assert lake.tables() == ["main.t", "s.new"]
    made = lake.table("s.new")
    assert made.columns == {"id": "int", "renamed": "bigint", "note": "string"}
    assert bag(made.to_arrow()) == [(1, 10, None), (2, 2**40, "n")]
    assert bag(keyed.to_arrow()) == [(1, "z", 0.5), (2, "a", None), (3, "a", None)]
    assert bag(keyed.to_arrow(at=before)) == [(1, "a"), (2, "a"), (3, "a")]
    with duck.attach(lake_args) as reader:
        assert bag(duck.read(reader, "s.new")) == bag(made.to_arrow())
        assert bag(duck.read(reader, "t")) == bag(keyed.to_arrow())
        assert bag(duck.read(reader, "t", before)) == bag(keyed.to_arrow(at=before))


def test_a_table_dropped_and_created_under_its_name_is_another_one(
    lake: tailrace.Lake, keyed: tailrace.Table, lake_args: LakeArgs
) -> None:
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.drop_table("t")
        txn.create_table("t", {"x": "string"}).append([{"x": "first"}])
        txn.drop_table("t")
        txn.create_table("T", {"x": "int"}).append([{"x": 7}])
        assert bag(txn.table("t").to_arrow()) == [(7,)]
    assert lake.tables() == ["main.T"]
    assert bag(keyed.to_arrow()) == [(7,)]
    assert bag(keyed.to_arrow(at=before)) == [(1, "a"), (2, "a"), (3, "a")]
    with duck.attach(lake_args) as reader:
        assert bag(duck.read(reader, "t")) == [(7,)]
        assert bag(duck.read(reader, "t", before)) == [(1, "a"), (2, "a"), (3, "a")]


def test_a_reader_that_knew_a_dropped_table_learns_that_it_is_gone(
    lake: tailrace.Lake, keyed: tailrace.Table, lake_args: LakeArgs
) -> None:
    before = lake.snapshot
    with duck.attach(lake_args) as reader:
        assert column(duck.read(reader, "t"), "id") == [1, 2, 3]
        lake.drop_table("t")
        with pytest.raises(duckdb.CatalogException, match="does not exist"):
            duck.read(reader, "t")
        assert column(duck.read(reader, "t", before), "id") == [1, 2, 3]


def test_a_schema_dropped_and_created_under_its_name_is_another_one(
    lake: tailrace.Lake, lake_args: LakeArgs
) -> None:
    lake.create_schema("s")
    lake.create_table("s.t", COLUMNS)
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.drop_table("s.t")
        txn.drop_schema("s")
        txn.create_schema("s")
        txn.create_table("s.u", COLUMNS).append(some(1))
    assert lake.tables() == ["s.u"]
    assert lake.tables(at=before) == ["s.t"]
    with duck.attach(lake_args) as reader:
        assert column(duck.read(reader, "s.u"), "id") == [1]
    with lake.transaction() as txn:
        txn.drop_table("s.u")
        txn.drop_schema("s")
    assert lake.tables() == []
    with pytest.raises(tailrace.NotFoundError, match="'s'"):
        lake.create_table("s.t", COLUMNS)


# --- all or nothing ---------------------------------------------------------------------------


def test_an_exception_rolls_everything_back(lake: tailrace.Lake, keyed: tailrace.Table) -> None:
    before, there = lake.snapshot, objects(lake)

    def fail() -> None:
        raise ZeroDivisionError

    def work() -> None:
        with lake.transaction() as txn:
            txn.create_table("u", COLUMNS).append(some(1))
            txn.table("t").upsert(some(1, 9, v="b"))
            txn.table("t").delete(some(2))
            txn.on_commit(lambda *_: fail())
            fail()

    with pytest.raises(ZeroDivisionError):
        work()
    assert lake.snapshot == before
    assert lake.tables() == ["main.t"]
    assert bag(keyed.to_arrow()) == [(1, "a"), (2, "a"), (3, "a")]
    assert objects(lake) == there
    assert open_transactions(lake) == 0


def test_several_tables_are_one_snapshot(lake: tailrace.Lake, keyed: tailrace.Table) -> None:
    second = lake.create_table("u", COLUMNS)
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.table("t").append(some(4))
        txn.table("u").append(some(4))
        txn.table("t").delete(some(1))
        txn.create_table("w", COLUMNS).append(some(4))
    assert txn.snapshot == lake.snapshot == before + 1
    assert [s.id for s in lake.snapshots()] == list(range(before + 2))
    assert column(keyed.to_arrow(at=before), "id") == [1, 2, 3]
    assert column(second.to_arrow(at=before), "id") == []
    assert column(keyed.to_arrow(at=before + 1), "id") == [2, 3, 4]
    assert column(second.to_arrow(at=before + 1), "id") == [4]
    assert open_transactions(lake) == 0


def test_a_transaction_without_writes_creates_no_snapshot(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.table("t").to_arrow()
        txn.table("t").delete(some(77))
        txn.table("t").append([])
    assert lake.snapshot == txn.snapshot == before
    assert open_transactions(lake) == 0


def test_a_refused_write_inside_a_transaction_leaves_the_rest_of_it_intact(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    with lake.transaction() as txn:
        txn.table("t").append(some(4))
        with pytest.raises(tailrace.InvalidError, match="exist"):
            txn.table("t").append(some(1, 5))
        with pytest.raises(tailrace.InvalidError, match="twice"):
            txn.table("t").upsert(some(6, 6))
        txn.table("t").append(some(7))
    assert column(keyed.to_arrow(), "id") == [1, 2, 3, 4, 7]


def test_an_ended_transaction_takes_nothing_more(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    txn = lake.transaction()
    mine = txn.table("t")
    mine.append(some(4))
    snapshot = txn.commit()
    assert snapshot == lake.snapshot
    uses: list[Callable[[], object]] = [
        txn.commit,
        lambda: mine.append(some(5)),
        lambda: mine.delete(some(1)),
        mine.to_arrow,
        lambda: mine.add_column("x", "int"),
        lambda: txn.table("t"),
        lambda: txn.create_table("u", COLUMNS),
        lambda: txn.drop_table("t"),
        lambda: txn.create_schema("s"),
        lambda: txn.drop_schema("main"),
        lambda: txn.on_commit(lambda *_: None),
    ]
    for use in uses:
        with pytest.raises(tailrace.InvalidError, match="ended"):
            use()
    txn.rollback()  # too late, and no error
    assert column(keyed.to_arrow(), "id") == [1, 2, 3, 4]


def test_an_error_after_the_commit_takes_nothing_back(
    lake: tailrace.Lake, keyed: tailrace.Table, lake_args: LakeArgs
) -> None:
    """For example an interrupt: the objects are referenced by then, and must stay."""

    def interrupt(step: str) -> None:
        if step == "committed":
            raise KeyboardInterrupt

    with lake_args.connect(on_step=interrupt) as interrupted:
        with pytest.raises(KeyboardInterrupt):
            interrupted.table("t").append(some(4))
        assert open_transactions(lake) == 0
    assert column(keyed.to_arrow(), "id") == [1, 2, 3, 4]


# --- isolation --------------------------------------------------------------------------------


def test_a_transaction_reads_at_its_snapshot_whatever_others_commit(
    lake: tailrace.Lake, keyed: tailrace.Table, other: tailrace.Lake
) -> None:
    lake.create_table("u", COLUMNS)
    with lake.transaction() as txn:
        before = bag(txn.table("t").to_arrow())
        other.table("t").upsert(some(1, 8, v="x"))
        other.table("t").delete(some(2))
        other.drop_table("u")
        other.create_table("later", COLUMNS)
        assert bag(txn.table("t").to_arrow()) == before
        # A table that is touched for the first time only now is read at the same snapshot.
        assert txn.table("u").to_arrow().num_rows == 0
        with pytest.raises(tailrace.NotFoundError):
            txn.table("later")
    assert bag(keyed.to_arrow()) == [(1, "x"), (3, "a"), (8, "x")]


def test_appends_never_conflict(lake: tailrace.Lake, other: tailrace.Lake) -> None:
    plain = lake.create_table("p", COLUMNS)
    keyed = lake.create_table("k", COLUMNS, primary_key="id")
    with lake.transaction() as one, other.transaction() as two, lake.transaction() as three:
        for number, txn in enumerate((one, two, three)):
            txn.table("p").append(some(1))
            txn.table("k").append(some(number))
    assert column(plain.to_arrow(), "id") == [1, 1, 1]
    assert column(keyed.to_arrow(), "id") == [0, 1, 2]


def test_disjoint_deletes_in_one_file_both_succeed(
    lake: tailrace.Lake, keyed: tailrace.Table, other: tailrace.Lake, lake_args: LakeArgs
) -> None:
    before = lake.snapshot
    with lake.transaction() as slow:
        slow.table("t").delete(some(1))
        other.table("t").delete(some(2))
    assert lake.snapshot == before + 2
    assert column(keyed.to_arrow(), "id") == [3]
    assert column(keyed.to_arrow(at=before + 1), "id") == [1, 3]
    assert column(keyed.to_arrow(at=before), "id") == [1, 2, 3]
    with duck.attach(lake_args) as reader:
        for at, ids in ((before, [1, 2, 3]), (before + 1, [1, 3]), (before + 2, [3])):
            assert column(duck.read(reader, "t", at), "id") == ids


def test_the_last_rows_of_a_file_may_go_in_two_transactions(
    lake: tailrace.Lake, keyed: tailrace.Table, other: tailrace.Lake, lake_args: LakeArgs
) -> None:
    before = lake.snapshot
    with lake.transaction() as slow:
        slow.table("t").delete(some(1, 3))
        other.table("t").delete(some(2))
    assert keyed.to_arrow().num_rows == 0
    assert column(keyed.to_arrow(at=before + 1), "id") == [1, 3]
    with duck.attach(lake_args) as reader:
        assert duck.read(reader, "t").num_rows == 0
        assert column(duck.read(reader, "t", before + 1), "id") == [1, 3]


# --- the first committer wins -----------------------------------------------------------------


def lose(
    lake: tailrace.Lake,
    first: Callable[[tailrace.Transaction], object],
    second: Callable[[tailrace.Transaction], object],
    match: str,
) -> None:
    """Two transactions from one snapshot: the second to commit conflicts and leaves no trace."""
    winner, loser = lake.transaction(), lake.transaction()
    second(loser)
    first(winner)
    snapshot = winner.commit()
    with pytest.raises(tailrace.ConflictError, match=match):
        loser.commit()
    assert lake.snapshot == snapshot
    assert open_transactions(lake) == 0
    loser.rollback()
    # A conflict is the end of that transaction, not of its caller.
    with pytest.raises(tailrace.InvalidError, match="ended"):
        loser.commit()


@pytest.mark.parametrize("winner", ["delete", "upsert"])
@pytest.mark.parametrize("loser", ["delete", "upsert"])
def test_the_same_row_changed_twice_is_a_conflict(
    sqlite_lake: tailrace.Lake, winner: str, loser: str
) -> None:
    table = sqlite_lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1, 2, 3))
    lose(
        sqlite_lake,
        lambda txn: getattr(txn.table("t"), winner)(some(2, v="w")),
        lambda txn: getattr(txn.table("t"), loser)(some(2, 3, v="l")),
        match=r"main\.t",
    )
    rest = [(1, "a"), (2, "w"), (3, "a")] if winner == "upsert" else [(1, "a"), (3, "a")]
    assert bag(table.to_arrow()) == rest


@pytest.mark.parametrize("winner", ["append", "upsert"])
@pytest.mark.parametrize("loser", ["append", "upsert"])
def test_the_same_new_key_twice_is_a_conflict_that_names_it(
    sqlite_lake: tailrace.Lake, winner: str, loser: str
) -> None:
    table = sqlite_lake.create_table("t", COLUMNS, primary_key="id")
    lose(
        sqlite_lake,
        lambda txn: getattr(txn.table("t"), winner)(some(7, 8, v="w")),
        lambda txn: getattr(txn.table("t"), loser)(some(6, 7, v="l")),
        match="'id': 7",
    )
    assert bag(table.to_arrow()) == [(7, "w"), (8, "w")]


ALTERATIONS: dict[str, Callable[[tailrace.Transaction], object]] = {
    "add": lambda txn: txn.table("t").add_column("x", "int"),
    "drop": lambda txn: txn.table("t").drop_column("v"),
    "rename": lambda txn: txn.table("t").rename_column("v", "w"),
    "widen": lambda txn: txn.table("t").widen_column("n", "bigint"),
    "drop table": lambda txn: txn.drop_table("t"),
}
WRITES: dict[str, Callable[[tailrace.Transaction], object]] = {
    "append": lambda txn: txn.table("t").append([{"id": 9, "v": "a", "n": 1}]),
    "upsert": lambda txn: txn.table("t").upsert([{"id": 1, "v": "b", "n": 1}]),
    "delete": lambda txn: txn.table("t").delete(some(1)),
    **ALTERATIONS,
}


def altered_table(lake: tailrace.Lake) -> tailrace.Table:
    table = lake.create_table("t", {**COLUMNS, "n": "int"}, primary_key="id")
    table.append([{"id": 1, "v": "a", "n": 1}, {"id": 2, "v": "a", "n": 2}])
    return table


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_whatever_a_transaction_does_to_a_table_altered_meanwhile_is_a_conflict(
    sqlite_lake: tailrace.Lake, alteration: str
) -> None:
    for write in WRITES.values():
        altered_table(sqlite_lake)
        lose(sqlite_lake, ALTERATIONS[alteration], write, match=r"main\.t was altered or dropped")
        if "main.t" in sqlite_lake.tables():
            sqlite_lake.drop_table("t")


@pytest.mark.parametrize("alteration", [name for name in ALTERATIONS if name != "drop table"])
def test_a_table_may_be_altered_while_others_change_its_rows(
    sqlite_lake: tailrace.Lake, alteration: str
) -> None:
    table = altered_table(sqlite_lake)
    with sqlite_lake.transaction() as txn:
        ALTERATIONS[alteration](txn)
        table.append([{"id": 3, "v": "a", "n": 3}])
        table.delete(some(1))
    assert column(table.to_arrow(), "id") == [2, 3]


def test_the_same_table_created_twice_is_a_conflict(lake: tailrace.Lake) -> None:
    def make(txn: tailrace.Transaction) -> None:
        txn.create_table("t", COLUMNS).append(some(1))

    lose(lake, make, make, match=r"main\.t")
    assert column(lake.table("t").to_arrow(), "id") == [1]


def test_the_same_schema_created_or_dropped_twice_is_a_conflict(lake: tailrace.Lake) -> None:
    lose(lake, lambda txn: txn.create_schema("s"), lambda txn: txn.create_schema("S"), match="'S'")
    lose(lake, lambda txn: txn.drop_schema("s"), lambda txn: txn.drop_schema("s"), match="'s'")


def test_a_schema_that_gets_a_table_cannot_be_dropped_meanwhile(lake: tailrace.Lake) -> None:
    lake.create_schema("s")
    lose(
        lake,
        lambda txn: txn.create_table("s.t", COLUMNS),
        lambda txn: txn.drop_schema("s"),
        match="'s'",
    )
    lake.create_schema("u")
    lose(
        lake,
        lambda txn: txn.drop_schema("u"),
        lambda txn: txn.create_table("u.t", COLUMNS),
        match="'u'",
    )


def test_a_table_replaced_meanwhile_is_a_conflict(lake: tailrace.Lake) -> None:
    lake.create_table("t", COLUMNS).append(some(1))

    def replace(txn: tailrace.Transaction) -> None:
        txn.drop_table("t")
        txn.create_table("t", COLUMNS).append(some(2))

    lose(lake, replace, lambda txn: txn.table("t").append(some(3)), match=r"main\.t")
    lose(lake, replace, replace, match=r"main\.t")
    assert column(lake.table("t").to_arrow(), "id") == [2]


def test_a_conflict_in_one_table_holds_back_all_of_them(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    lake.create_table("u", COLUMNS)

    def both(txn: tailrace.Transaction) -> None:
        txn.table("u").append(some(1))
        txn.table("t").delete(some(1))

    lose(lake, lambda txn: txn.table("t").delete(some(1)), both, match=r"main\.t")
    assert lake.table("u").to_arrow().num_rows == 0


def test_a_reader_of_other_tables_is_not_in_the_way(
    lake: tailrace.Lake, keyed: tailrace.Table, other: tailrace.Lake
) -> None:
    """Snapshot isolation: what a transaction only read may change under it."""
    second = lake.create_table("u", COLUMNS)
    with lake.transaction() as txn:
        txn.table("u").append(some(txn.table("t").to_arrow().num_rows))
        other.table("t").delete(some(1))
    assert column(second.to_arrow(), "id") == [3]


def test_a_commit_that_others_keep_overtaking_succeeds_in_the_end(
    lake: tailrace.Lake, keyed: tailrace.Table, lake_args: LakeArgs
) -> None:
    """Each time it has prepared, someone deletes in the same file; the last round is locked."""
    keyed.append(some(*range(10, 20)))
    overtaken = []

    def overtake(step: str) -> None:
        if step == "prepared":
            overtaken.append(10 + len(overtaken))
            keyed.delete(some(overtaken[-1]))

    with lake_args.connect(on_step=overtake) as patient:
        patient.table("t").delete(some(1, 19))
    rounds = lake._runtime.settings.commit_rounds
    assert overtaken == list(range(10, 10 + rounds))
    assert column(keyed.to_arrow(), "id") == [2, 3, *range(10 + rounds, 19)]


# --- what commits with it ---------------------------------------------------------------------

note = sa.table("note", sa.column("snapshot", sa.Integer))


@pytest.fixture
def notes(lake: tailrace.Lake) -> Callable[[], list[int]]:
    """A table of the caller's own in the catalog's database, and what is in it."""
    with lake._runtime.database.write() as connection:
        connection.execute(sa.text("CREATE TABLE note (snapshot BIGINT)"))

    def read() -> list[int]:
        with lake._runtime.database.read() as connection:
            return sorted(connection.execute(sa.select(note.c.snapshot)).scalars())

    return read


def write_note(commit: Commit) -> None:
    commit.connection.execute(sa.insert(note).values(snapshot=commit.snapshot))


def test_a_caller_s_own_rows_commit_with_the_rest(
    lake: tailrace.Lake, keyed: tailrace.Table, notes: Callable[[], list[int]]
) -> None:
    with lake.transaction() as txn:
        txn.on_commit(write_note)
        txn.table("t").append(some(4))
    assert notes() == [txn.snapshot] == [lake.snapshot]


def test_a_caller_s_own_rows_alone_create_no_snapshot(
    lake: tailrace.Lake, keyed: tailrace.Table, notes: Callable[[], list[int]]
) -> None:
    before = lake.snapshot
    with lake.transaction() as txn:
        txn.on_commit(write_note)
        txn.on_commit(write_note)
    assert lake.snapshot == txn.snapshot == before
    assert notes() == [before, before]
    assert open_transactions(lake) == 0


def test_a_caller_s_own_rows_fall_with_a_conflict(
    lake: tailrace.Lake, keyed: tailrace.Table, notes: Callable[[], list[int]]
) -> None:
    def both(txn: tailrace.Transaction) -> None:
        txn.on_commit(write_note)
        txn.table("t").delete(some(1))

    lose(lake, lambda txn: txn.table("t").delete(some(1)), both, match=r"main\.t")
    assert notes() == []


def test_a_caller_that_fails_in_the_commit_takes_everything_with_it(
    lake: tailrace.Lake, keyed: tailrace.Table, notes: Callable[[], list[int]]
) -> None:
    before, there = lake.snapshot, objects(lake)

    def overtaken(*_: object) -> None:
        raise tailrace.ConflictError("the watermark moved")

    txn = lake.transaction()
    txn.on_commit(write_note)
    txn.on_commit(overtaken)
    txn.table("t").append(some(4))
    with pytest.raises(tailrace.ConflictError, match="watermark"):
        txn.commit()
    assert notes() == []
    assert lake.snapshot == before
    assert column(keyed.to_arrow(), "id") == [1, 2, 3]
    assert objects(lake) == there
    assert open_transactions(lake) == 0


def test_a_commit_tells_its_callers_the_ids_of_what_it_creates(
    lake: tailrace.Lake, keyed: tailrace.Table
) -> None:
    ids: list[int] = []
    with lake.transaction() as txn:
        new = txn.create_table("new", COLUMNS).info
        txn.on_commit(lambda commit: ids.extend(map(commit.table_id, (new, keyed.info))))
    assert new.id < 0
    assert ids == [lake.table("new").info.id, keyed.info.id]
