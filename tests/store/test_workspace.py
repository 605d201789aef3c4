"""What a transaction has done, and what of it a commit has to write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from tailrace.store.lookup import ViewInfo
from tailrace.store.schema import TableInfo, new_columns
from tailrace.store.workspace import Commit, SchemaWork, TableWork, ViewWork, Workspace

if TYPE_CHECKING:
    from tailrace.catalog.database import Together


def table(number: int, name: str = "t") -> TableInfo:
    bare = TableInfo(
        id=number, uuid="u", schema_id=0, schema="main", name=name, path=f"main/{name}/", columns=()
    )
    return new_columns(bare, [("id", pa.int64(), True)], [])


def view(number: int) -> ViewInfo:
    return ViewInfo(id=number, uuid="u", schema_id=0, schema="main", name="v", sql="SELECT 1")


def test_what_was_only_looked_at_needs_no_snapshot() -> None:
    work = Workspace(id="x")
    work.add(TableWork(base=table(1), info=table(1)))
    work.views["main", "v"] = ViewWork(base=view(2), info=view(2))
    assert not work.needs_snapshot
    assert not list(work.changed_tables())


def test_what_was_created_and_dropped_needs_no_snapshot() -> None:
    work = Workspace(id="x")
    work.add(TableWork(base=None, info=table(-1), dropped=True))
    work.views["main", "v"] = ViewWork(base=None, info=None)
    assert not work.needs_snapshot


def test_created_altered_and_dropped_tables_are_changed() -> None:
    created = TableWork(base=None, info=table(-1))
    altered = TableWork(base=table(2), info=replace(table(2), name="other"))
    dropped = TableWork(base=table(3), info=table(3), dropped=True)
    for one in (created, altered, dropped):
        work = Workspace(id="x", tables={("main", "t"): one})
        assert list(work.changed_tables()) == [one]
        assert work.needs_snapshot


def test_a_schema_needs_a_snapshot() -> None:
    work = Workspace(id="x")
    work.schemas["s"] = SchemaWork(id=-1, name="s", path="s/", created=True)
    assert work.needs_snapshot


def test_a_dropped_table_is_remembered_when_its_name_is_given_again() -> None:
    work = Workspace(id="x")
    old = work.add(TableWork(base=table(1), info=table(1), dropped=True))
    new = work.add(TableWork(base=None, info=table(-1, "T")))
    assert work.replaced == [old]
    assert list(work.changed_tables()) == [old, new]
    assert work.drops(1)
    assert not work.drops(-1)


def test_a_replaced_view_is_dropped() -> None:
    work = Workspace(id="x", views={("main", "v"): ViewWork(base=view(7), info=view(-1))})
    assert work.drops(7)
    assert not work.drops(8)


def test_positions_that_are_removed_twice_are_removed_once() -> None:
    work = TableWork(base=table(1), info=table(1))
    work.remove({5: np.array([3, 1])})
    work.remove({5: np.array([1, 2]), 6: np.array([0])})
    assert {key: list(found) for key, found in work.removed.items()} == {5: [1, 2, 3], 6: [0]}
    assert work.changes_rows
    assert not replace(work, dropped=True).changes_rows


def test_provisional_ids_are_never_given_twice() -> None:
    work = Workspace(id="x")
    assert [work.provisional_id() for _ in range(3)] == [-1, -2, -3]


def test_a_commit_knows_tables_by_the_ids_that_they_get() -> None:
    commit = Commit(statements=cast("Together", None), snapshot=4, ids={-1: 12})
    assert commit.table_id(table(-1)) == 12
    assert commit.table_id(table(3)) == 3
