"""Named views and the hidden tables below them: who sees them, and who may take a name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

import tailrace
from tailrace.store import lookup, spark_scan
from tailrace.store.schema import FILE, POS
from tests.support import duck
from tests.support.lakes import LakeArgs
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailrace.store.files import PositionsByFile
    from tailrace.store.transaction import Transaction

STORED = "_tailrace_0a1b"
COLUMNS = {"city": "string", "total": "bigint", "_tailrace_count": "bigint", "_visible": "boolean"}
TEXT = f"SELECT city, total FROM {STORED} WHERE _visible"


def row(city: str, total: int, *, visible: bool = True) -> dict[str, Any]:
    return {"city": city, "total": total, "_tailrace_count": 1, "_visible": visible}


@pytest.fixture
def stored(lake: tailrace.Lake) -> tailrace.Table:
    """A hidden table with a visible and an invisible row in the schema `s`, and its view `s.v`."""
    lake.create_schema("s")
    with lake.transaction() as txn:
        made = txn.create_table(f"s.{STORED}", COLUMNS, hidden=True)
        made.append([row("Bonn", 1), row("Rome", 2, visible=False)])
        txn.create_view("s.v", TEXT)
    return lake.table(f"s.{STORED}")


def views(lake: tailrace.Lake, at: int | None = None) -> dict[str, str]:
    moment, tenant = lake.snapshot if at is None else at, lake._runtime.tenant
    with lake._runtime.database.read() as connection:
        found = lookup.list_views(connection, moment, tenant)
        for view in found:
            assert view == lookup.find_view(connection, view.schema, view.name, moment, tenant)
    return {view.full_name: view.sql for view in found}


# --- what other engines see -------------------------------------------------------------------


@pytest.mark.usefixtures("stored")
def test_a_view_is_read_whatever_the_lake_is_called_and_the_reader_has(
    lake_args: LakeArgs,
) -> None:
    for alias in ("lake", "s", STORED, "two words", 'q"t'):
        with duck.connect(lake_args) as reader:
            # Tables of the same name elsewhere are not taken for the view's.
            reader.execute(f"CREATE TABLE {STORED} AS SELECT 'wrong' AS city")
            reader.execute("CREATE SCHEMA other")
            reader.execute(f"CREATE TABLE other.{STORED} AS SELECT 'wrong' AS city")
            reader.execute("USE other")
            name = duck._name(alias)
            address = duck._text(duck.address(lake_args))
            reader.execute(f"ATTACH {address} AS {name} (READ_ONLY)")
            found = reader.execute(f"FROM {name}.s.v").to_arrow_table()
            assert found.column_names == ["city", "total"]
            assert bag(found) == [("Bonn", 1)]


def test_a_reader_sees_the_old_view_or_the_new_one(
    lake: tailrace.Lake, stored: tailrace.Table, lake_args: LakeArgs
) -> None:
    with duck.attach(lake_args) as reader:
        first = lake.snapshot
        assert bag(duck.read(reader, "s.v")) == [("Bonn", 1)]
        second = stored.append([row("Oslo", 3)])
        with lake.transaction() as txn:
            txn.replace_view("S.V", f"SELECT total FROM {STORED}", columns=["a sum"])
        assert lake.snapshot == first + 2
        now = duck.read(reader, "s.v")
        assert now.column_names == ["a sum"]
        assert bag(now) == [(1,), (2,), (3,)]
        with lake.transaction() as txn:
            txn.drop_view("s.v")
        with pytest.raises(duckdb.CatalogException, match="does not exist"):
            duck.read(reader, "s.v")
        # Time travel sees the views of its time, and through them the tables of that time.
        assert bag(duck.read(reader, "s.v", first)) == [("Bonn", 1)]
        assert bag(duck.read(reader, "s.v", second)) == [("Bonn", 1), ("Oslo", 3)]
        assert bag(duck.read(reader, "s.v", first + 2)) == [(1,), (2,), (3,)]
    assert views(lake) == {}
    assert views(lake, first) == views(lake, second) == {"s.v": TEXT}
    assert views(lake, first + 2) == {"s.v": f"SELECT total FROM {STORED}"}


def test_the_catalog_rows_are_those_that_duckdb_writes(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs, tmp_path: Path
) -> None:
    with sqlite_lake.transaction() as txn:
        txn.create_schema("s")
    with sqlite_lake.transaction() as txn:
        txn.create_view("s.v", "SELECT 1 AS a")
    with sqlite_lake.transaction() as txn:
        txn.replace_view("s.v", "SELECT 1, 2", columns=["x y", 'q"r'])
    with sqlite_lake.transaction() as txn:
        txn.drop_view("s.v")
    theirs = LakeArgs(catalog="sqlite", url=str(tmp_path))
    with duck.connect(theirs) as writer:
        where = duck._text(str(tmp_path / "data"))
        writer.execute(f"ATTACH {duck._text(duck.address(theirs))} AS lake (DATA_PATH {where})")
        writer.execute("CREATE SCHEMA lake.s")
        writer.execute("CREATE VIEW lake.s.v AS SELECT 1 AS a")
        writer.execute('CREATE OR REPLACE VIEW lake.s.v("x y", "q""r") AS SELECT 1, 2')
        writer.execute("DROP VIEW lake.s.v")
    for table, leave_out in (
        ("view", "view_uuid"),
        ("snapshot", "snapshot_time"),
        ("snapshot_changes", "author"),
        ("schema_versions", None),
    ):
        assert rows_of(sqlite_lake_args, table, leave_out) == rows_of(theirs, table, leave_out)


def rows_of(lake: LakeArgs, table: str, leave_out: str | None) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(lake.catalog_file)) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(one) for one in connection.execute(f"SELECT * FROM ducklake_{table}")]
    return [{name: one[name] for name in one if name != leave_out} for one in found]


# --- who may take a name ----------------------------------------------------------------------


def test_tables_and_views_share_their_names(lake: tailrace.Lake, stored: tailrace.Table) -> None:
    lake.create_table("s.t", {"id": "int"})
    before = lake.snapshot
    for use, why in (
        (lambda txn: txn.create_table("s.V", {"id": "int"}), r"the view s\.V exists already"),
        (lambda txn: txn.create_view("s.v", TEXT), r"the view s\.v exists already"),
        (lambda txn: txn.create_view("s.T", TEXT), r"the table s\.T exists already"),
        (lambda txn: txn.drop_table("s.v"), r"s\.v is a view, not a table: use drop_view"),
        (lambda txn: txn.drop_schema("s"), r"tables or views \(v, t, _tailrace_0a1b\)"),
        (lambda txn: txn.create_view("s.w", " "), "needs the text of a query"),
        (lambda txn: txn.create_view("s._tailrace_w", TEXT), "is reserved"),
    ):
        refuse(lake, use, tailrace.InvalidError, why)
    for use, why in (
        (lambda txn: txn.create_view("no.v", TEXT), "no schema 'no'"),
        (lambda txn: txn.drop_view("s.t"), r"no view s\.t"),
        (lambda txn: txn.replace_view("s.w", TEXT), r"no view s\.w"),
    ):
        refuse(lake, use, tailrace.NotFoundError, why)
    with lake.transaction() as txn:
        with pytest.raises(tailrace.InvalidError, match="text"):
            txn.replace_view("s.v", "")
        assert txn.find_view("s.v") is not None
    assert lake.snapshot == before
    # A name that is given up is free in the same transaction.
    with lake.transaction() as txn:
        txn.drop_view("s.v")
        txn.create_table("s.v", {"id": "int"})
        txn.drop_table("s.t")
        txn.create_view("s.t", "SELECT 1 AS one")
        txn.create_view("s.brief", TEXT)
        txn.drop_view("s.brief")
        assert txn.list_views() == [("s", "t")]
    assert lake.tables() == ["s.v"]
    assert views(lake) == {"s.t": "SELECT 1 AS one"}
    with lake.transaction() as txn:
        for name in ("s.v", stored.name):
            txn.drop_table(name)
        txn.drop_view("s.t")
        txn.drop_schema("s")
        txn.create_schema("s")
        txn.create_view("s.t", "SELECT 2 AS two")
    assert views(lake) == {"s.t": "SELECT 2 AS two"}
    assert lake.snapshot == before + 2


def refuse(
    lake: tailrace.Lake, use: Callable[[Transaction], object], kind: type[Exception], why: str
) -> None:
    with lake.transaction() as txn, pytest.raises(kind, match=why):
        use(txn)


@pytest.mark.usefixtures("stored")
def test_the_first_committer_has_the_name(lake: tailrace.Lake) -> None:
    lake.create_schema("empty")

    def create_table(txn: Transaction) -> None:
        txn.create_table("s.new", {"id": "int"})

    def create_view(txn: Transaction) -> None:
        txn.create_view("s.NEW", TEXT)

    def replace(txn: Transaction) -> None:
        txn.replace_view("s.v", "SELECT 1")

    def drop(txn: Transaction) -> None:
        txn.drop_view("s.v")

    for first, second in (
        (create_table, create_view),
        (create_view, create_table),
        (create_view, create_view),
        (replace, replace),
        (replace, drop),
        (drop, replace),
        (lambda txn: txn.create_view("empty.v", TEXT), lambda txn: txn.drop_schema("empty")),
        (lambda txn: txn.drop_schema("empty"), lambda txn: txn.create_view("empty.v", TEXT)),
    ):
        undone = lake.snapshot
        mine, theirs = lake.transaction(), lake.transaction()
        second(mine)
        first(theirs)
        theirs.commit()
        with pytest.raises(tailrace.ConflictError):
            mine.commit()
        assert lake.snapshot == undone + 1
        restore(lake)


def restore(lake: tailrace.Lake) -> None:
    """The names as they were before a race."""
    with lake.transaction() as txn:
        for schema, name in txn.list_views():
            txn.drop_view(f"{schema}.{name}")
        if ("s", "new") in txn.list_tables():
            txn.drop_table("s.new")
        txn.create_view("s.v", TEXT)
        if txn._schema_id("empty") is None:
            txn.create_schema("empty")


def test_a_tenant_has_views_of_its_own(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as main, sqlite_lake_args.connect(tenant="acme") as acme:
        acme.create_schema("a")
        with acme.transaction() as txn:
            txn.create_view("a.v", "SELECT 1")
        with acme.transaction() as txn:
            txn.drop_view("a.v")
            txn.create_view("a.w", "SELECT 2")
        assert views(acme) == {"a.w": "SELECT 2"}
        assert views(main) == {}
        assert acme.snapshots()[-1].changes == 'dropped_view:2,created_view:"a"."w"'
        assert main.snapshots()[-1].changes == ""
        for name in ("a.w", "main.w"):
            lake, other = (main, acme) if name == "a.w" else (acme, main)
            with lake.transaction() as txn, pytest.raises(tailrace.NotFoundError, match="schema"):
                txn.create_view(name, "SELECT 3")
            with lake.transaction() as txn, pytest.raises(tailrace.NotFoundError, match="view"):
                txn.drop_view(name)
            assert other.snapshot == lake.snapshot


# --- hidden tables ----------------------------------------------------------------------------


def test_hidden_tables_are_not_listed_and_not_for_users_to_create(
    sqlite_lake: tailrace.Lake,
) -> None:
    with sqlite_lake.transaction() as txn:
        made = txn.create_table(STORED, COLUMNS, hidden=True)
        made.add_column("_tailrace_sum", "bigint")
        for name in ("_tailrace_store_bits", "_pos"):
            with pytest.raises(tailrace.InvalidError, match="reserved"):
                made.add_column(name, "int")
        with pytest.raises(tailrace.InvalidError, match="begins with _tailrace_"):
            txn.create_table("visible", COLUMNS, hidden=True)
    assert sqlite_lake.tables() == []
    assert "_tailrace_sum" in sqlite_lake.table(STORED).columns
    for name in ("_tailrace_x", "_Tailrace_x"):
        with pytest.raises(tailrace.InvalidError, match="reserved"):
            sqlite_lake.create_table(name, {"id": "int"})
    with pytest.raises(tailrace.InvalidError, match="reserved"):
        sqlite_lake.create_table("visible", COLUMNS)


def test_rows_are_removed_at_places_that_a_consumer_found(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    table = sqlite_lake.create_table("t", {"id": "int"})
    table.append([{"id": 1}, {"id": 2}, {"id": 3}])
    table.delete("id = 1")
    with sqlite_lake.transaction() as txn:
        txn.table("t").append([{"id": 4}, {"id": 5}])
        places = find(txn, "id IN (2, 4)")
        assert len(places) == 2
        txn.remove("t", places)
        txn.remove("t", {})
        assert bag(txn.table("t").to_arrow()) == [(3,), (5,)]
        file = next(iter(places))
        for wrong in ({7: np.array([0])}, {file: np.array([3])}, {file: np.array([-1])}):
            with pytest.raises(tailrace.InvalidError, match="places of file"):
                txn.remove("t", wrong)
    assert bag(table.to_arrow()) == [(3,), (5,)]
    # Also if the transaction has not looked at the table before; and nothing is no commit.
    mine, theirs = sqlite_lake.transaction(), sqlite_lake.transaction()
    places = {theirs.scan("main", "t").files[0].file.key: np.array([2])}  # where 3 is
    mine.remove("t", places)
    theirs.remove("t", places | {0: np.array([], np.int64)})
    mine.commit()
    with pytest.raises(tailrace.ConflictError, match="changed by another"):
        theirs.commit()
    newest = sqlite_lake.snapshot
    with sqlite_lake.transaction() as txn:
        txn.remove("main.t", {0: np.array([], np.int64)})
    assert sqlite_lake.snapshot == newest
    with duck.attach(sqlite_lake_args) as reader:
        assert bag(duck.read(reader, "t")) == [(5,)]


def find(txn: Transaction, predicate: str) -> PositionsByFile:
    """Where a transaction sees the rows that match."""
    rows = spark_scan.to_df(txn.runtime, txn.scan("main", "t"), places=True).where(predicate)
    found: PositionsByFile = {}
    for one in rows.collect():
        found[one[FILE]] = np.append(found.get(one[FILE], np.array([], np.int64)), one[POS])
    return found
