"""Compaction as tasks: what is due, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.propagation import compacting
from tests.support import duck
from tests.support.process import wait_until
from tests.support.rows import bag

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

COLUMNS = {"id": "bigint", "v": "string"}


def files_of(lake: tailrace.Lake, name: str = "t") -> int:
    table = lake.table(name).info
    return len(lake.runtime.mirror.data_files(table, lake.snapshot))


def make(lake: tailrace.Lake, commits: int = 20) -> list[tuple[int, str]]:
    """A table of small files, with some deleted rows; returns its rows."""
    random, rows = Random(1), dict[int, str]()
    table = lake.create_table("t", COLUMNS, primary_key="id")
    for number in range(commits):
        some = {random.randrange(200): f"v{number}" for _ in range(5)}
        table.upsert([{"id": i, "v": v} for i, v in some.items()])
        rows |= some
    return sorted(rows.items())


def test_what_is_due_is_done_and_changes_nothing(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        rows = make(lake)
        before, count = lake.snapshot, files_of(lake)
        planned = lake.maintain(dry_run=True)
        assert [(one.table, one.files, one.into) for one in planned] == [("main.t", count, None)]
        assert lake.snapshot == before
        (done,) = lake.maintain("t")
        assert (done.files, done.into, done.rows) == (count, 1, len(rows))
        assert bag(lake.table("t").to_arrow()) == rows
        assert files_of(lake) == 1
        assert lake.maintain() == []
        assert lake.changed_tables(before) == []
        with duck.attach(lake_args) as reader:
            assert bag(duck.read(reader, "t")) == rows
            assert bag(duck.read(reader, "t", before)) == rows
        (task,) = [one for one in lake.tasks() if one.type == "compact"]
        assert (task.state, task.result["rows"]) == ("done", len(rows))


def test_only_files_that_may_have_such_rows_are_compacted(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", COLUMNS, primary_key="id")
    for first in range(0, 200, 10):
        table.append([{"id": first + i, "v": "x"} for i in range(10)])
    (done,) = sqlite_lake.maintain("t", where="id >= 100")
    assert (done.files, done.into) == (10, 1)
    assert files_of(sqlite_lake) == 11
    with pytest.raises(tailrace.InvalidError, match="which files"):
        sqlite_lake.maintain("t", where="upper(v) = 'X'")


def test_a_node_that_serves_compacts_by_itself(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        rows = make(lake, commits=3)
        with lake.serving():
            table = lake.table("t")
            for number in range(1000, 1040):
                table.append([{"id": number, "v": "x"}])
            wait_until(lambda: files_of(lake) < 20, what="compacted files", timeout=60)
        assert bag(table.to_arrow()) == [*rows, *((n, "x") for n in range(1000, 1040))]


def test_views_are_compacted_by_the_names_of_views(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    table = lake.create_table("t", COLUMNS, primary_key="id")
    view = lake.create_view("upper_t", "SELECT id, upper(v) AS u FROM t")
    for number in range(30):
        table.append([{"id": number, "v": "x"}])
        view.refresh()
    before = sorted(view.to_arrow().to_pylist(), key=lambda row: row["id"])
    lake.maintain("upper_t", full=True)
    assert sorted(view.to_arrow().to_pylist(), key=lambda row: row["id"]) == before
    assert view.verify().ok
    assert lake.maintain(full=True, dry_run=True) == lake.maintain("t", full=True, dry_run=True)


def test_optimize_says_what_it_did(sqlite_lake: tailrace.Lake) -> None:
    make(sqlite_lake)
    count = files_of(sqlite_lake)
    result = sqlite_lake.sql("OPTIMIZE t WHERE id >= 0 FULL")
    assert result.message == f"main.t: {count} files became 1"
    assert result.to_arrow().column("into").to_pylist() == [1]
    assert sqlite_lake.sql("OPTIMIZE t").message == "main.t: nothing to do"


def test_health_says_what_is_worth_it(sqlite_lake: tailrace.Lake) -> None:
    rows = make(sqlite_lake)
    count = files_of(sqlite_lake)
    health = sqlite_lake.table("t").health()
    assert (health.files, health.small_files, health.rows) == (count, count, len(rows))
    assert health.deleted_rows > 0
    assert [one.reason for one in sqlite_lake.maintain("t", dry_run=True)] == list(health.due)
    (row,) = sqlite_lake.sql("DESCRIBE DETAIL t").to_arrow().to_pylist()
    assert (row["files"], row["due"]) == (count, health.due[0])
    sqlite_lake.maintain("t")
    health = sqlite_lake.table("t").health()
    assert (health.files, health.deleted_rows, health.due) == (1, 0, ())
    # A table of that name is described as any other.
    sqlite_lake.create_table("detail", {"id": "int"})
    assert sqlite_lake.sql("DESCRIBE detail").to_arrow().num_rows == 1
    assert sqlite_lake.sql("DESCRIBE DETAIL detail").to_arrow().column("files").to_pylist() == [0]


def test_only_tables_that_may_be_worth_it_are_looked_at(sqlite_lake: tailrace.Lake) -> None:
    lake = sqlite_lake
    make(lake)
    quiet = [lake.create_table(f"quiet{number}", COLUMNS) for number in range(20)]
    for table in quiet:
        table.append([{"id": 1, "v": "x"}])
    mirror, looked_at = lake.runtime.mirror, []
    plain = mirror.data_files
    mirror.data_files = lambda table, at: (looked_at.append(table.name), plain(table, at))[1]  # type: ignore[method-assign]
    ids = [lake.table(name).info.id for name in lake.tables()]
    looked_at.clear()
    tasks = list(compacting.due(lake.runtime, ids))
    assert looked_at == ["t"]
    assert [task.scope.table for task in tasks] == [lake.table("t").info.id]


def test_a_purge_takes_the_files_of_before_though_no_row_has_changed(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        lake.configure(snapshot_retention=timedelta(0))
        rows = make(lake)
        lake.purge()
        lake.maintain("t")
        lake.create_table("other", COLUMNS)
        lake.purge()
        ended = sa.select(sa.func.count()).where(dl.data_file.c.end_snapshot.is_not(None))
        with lake.runtime.database.read() as connection:
            assert connection.execute(ended).scalar_one() == 0
        assert bag(lake.table("t").to_arrow()) == rows
