"""What a commit finds that began before a compaction, and a compaction that commits pass by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.store import changes
from tests.support import duck
from tests.support.compaction import compact
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs


@pytest.fixture
def lake(lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    """Without Spark, which nothing here needs."""
    with lake_args.connect() as opened:
        yield opened


@pytest.fixture
def table(lake: tailrace.Lake) -> tailrace.Table:
    """Twelve rows in three files, of which one has lost a row."""
    made = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    for first in (0, 4, 8):
        made.append([{"id": first + i, "v": "old"} for i in range(4)])
    made.delete([{"id": 5}])
    return made


LEFT = [(i, "old") for i in range(12) if i != 5]


def test_a_row_that_is_deleted_meanwhile_stays_deleted(
    lake: tailrace.Lake, lake_args: LakeArgs, table: tailrace.Table
) -> None:
    compact(lake, "t", meanwhile=lambda: table.delete([{"id": 0}, {"id": 9}]))
    left = [row for row in LEFT if row[0] not in (0, 9)]
    assert bag(table.to_arrow()) == left
    with duck.attach(lake_args) as reader:
        assert bag(duck.read(reader, "t")) == left
    table.delete([{"id": 1}])
    assert bag(table.to_arrow()) == [row for row in left if row[0] != 1]


def test_a_file_that_ends_meanwhile_leaves_nothing_behind(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    compact(lake, "t", meanwhile=lambda: table.delete([{"id": i} for i in range(4)]))
    assert bag(table.to_arrow()) == LEFT[4:]
    compact(lake, "t", meanwhile=lambda: table.delete([{"id": i} for i in range(12)]))
    assert bag(table.to_arrow()) == []


def test_a_transaction_that_began_before_finds_its_rows(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    with lake.transaction() as txn:
        own = txn.table("t")
        own.delete([{"id": 6}])
        compact(lake, "t")
        own.upsert([{"id": 7, "v": "new"}])
        # Twice: the rows have moved on since.
        compact(lake, "t")
        table.delete([{"id": 11}])
    assert bag(table.to_arrow()) == sorted(
        [row for row in LEFT if row[0] not in (6, 7, 11)] + [(7, "new")]
    )


def test_rows_that_others_deleted_are_still_a_conflict(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    for deletes_first in (True, False):
        txn = lake.transaction()
        txn.table("t").delete([{"id": 1 if deletes_first else 2}])
        if deletes_first:
            table.delete([{"id": 1}])
        compact(lake, "t")
        if not deletes_first:
            table.delete([{"id": 2}])
        with pytest.raises(tailrace.ConflictError, match="changed by another"):
            txn.commit()


def test_a_key_that_came_in_and_moved_is_found(lake: tailrace.Lake, table: tailrace.Table) -> None:
    txn = lake.transaction()
    # A key of before that it replaces itself is none that came in.
    txn.table("t").upsert([{"id": 4, "v": "mine"}, {"id": 20, "v": "mine"}])
    table.append([{"id": 20, "v": "theirs"}])
    compact(lake, "t")
    with pytest.raises(tailrace.ConflictError, match="inserted the same keys first"):
        txn.commit()
    with lake.transaction() as txn:
        txn.table("t").upsert([{"id": 4, "v": "mine"}])
        table.append([{"id": 21, "v": "theirs"}])
        compact(lake, "t")
    rows = dict(bag(table.to_arrow()))
    assert (rows[4], rows[20], rows[21]) == ("mine", "theirs", "theirs")


def test_of_two_compactions_of_the_same_files_one_gives_up(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    with pytest.raises(tailrace.ConflictError, match="has compacted"):
        compact(lake, "t", meanwhile=lambda: compact(lake, "t"))
    assert bag(table.to_arrow()) == LEFT


def test_a_compaction_of_a_dropped_table_gives_up(
    lake: tailrace.Lake, table: tailrace.Table
) -> None:
    with pytest.raises(tailrace.ConflictError, match="altered or dropped"):
        compact(lake, "t", meanwhile=lambda: lake.drop_table("t"))


def test_row_ids_go_on_where_they_were(lake: tailrace.Lake, table: tailrace.Table) -> None:
    """Ids that were moved are not given again, and new ones are above all others."""
    compact(lake, "t")
    before = lake.snapshot
    table.append([{"id": 30, "v": "new"}])
    compact(lake, "t")
    table.delete([{"id": 30}, {"id": 3}])
    compact(lake, "t")
    feed = table._feed(before, lake.snapshot, net=True)
    assert [(delta.change, delta.rows.rows) for delta in feed.deltas] == [("delete", 1)]


def test_rows_that_only_moved_are_no_difference(lake: tailrace.Lake, table: tailrace.Table) -> None:
    before = lake.snapshot
    table.append([{"id": 30, "v": "new"}])
    compact(lake, "t")
    table.delete([{"id": 2}])
    found = changes.difference(lake.runtime, table._scan(before), table._scan(None))
    rows = changes.to_arrow(lake.runtime, found).select(["_change", "id"]).to_pylist()
    assert sorted((row["_change"], row["id"]) for row in rows) == [("delete", 2), ("insert", 30)]
