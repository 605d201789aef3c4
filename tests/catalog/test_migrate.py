"""Creating, reopening and refusing catalogs."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog.configuration import own_metadata
from tailrace.catalog.part import VIEW_PREFIX, drop_views
from tailrace.parts import CATALOG_PARTS
from tailrace.sql.listings import system_rows
from tailrace.store import tables as st
from tailrace.store.tasks import TaskState
from tests.support import duck, servers
from tests.support.lakes import LakeArgs
from tests.support.process import wait_until


def test_a_lake_is_created_once_and_opened_again(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        assert lake.snapshot == 0
        lake.create_table("t", {"a": "int"}).append([{"a": 1}])
    with lake_args.connect() as lake:
        assert lake.snapshot == 2
        assert lake.tables() == ["main.t"]
        assert [s.id for s in lake.snapshots()] == [0, 1, 2]


def test_many_may_create_the_same_lake_at_once(lake_args: LakeArgs) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def open_it(_: int) -> int:
        with lake_args.connect() as lake:
            return lake.snapshot

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(open_it, range(8))) == [0] * 8


def test_a_lake_of_another_format_is_refused(sqlite_lake_args: LakeArgs) -> None:
    sqlite_lake_args.connect().close()
    with sqlite3.connect(sqlite_lake_args.catalog_file) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'")
    with pytest.raises(tailrace.InvalidError, match=r"format 0\.4"):
        sqlite_lake_args.connect()


def test_a_lake_of_a_newer_tailrace_is_refused(sqlite_lake_args: LakeArgs) -> None:
    sqlite_lake_args.connect().close()
    with sqlite3.connect(sqlite_lake_args.catalog_file) as connection:
        connection.execute("UPDATE tailrace_metadata SET value = '99' WHERE key = 'version'")
    with pytest.raises(tailrace.InvalidError, match="newer Tailrace"):
        sqlite_lake_args.connect()


# Until version 10: what purges had left of tables.
OLD_TASKS = """
CREATE TABLE tailrace_task (kind VARCHAR NOT NULL, table_id BIGINT NOT NULL,
    snapshot BIGINT NOT NULL, created_at {} NOT NULL, PRIMARY KEY (kind, table_id))
"""


@pytest.mark.parametrize("serves", [False, True])
def test_a_process_writes_no_more_once_the_lake_was_upgraded(
    lake_args: LakeArgs, serves: bool
) -> None:
    with lake_args.connect() as lake:
        servers.take_over_soon(lake)
        lake.create_table("t", {"id": "int"}, primary_key="id").append([{"id": 1}])
        begun = lake.transaction()
        begun.table("t").append([{"id": 2}])
        serving = lake.serving() if serves else None
        before = lake.snapshot
        with lake.runtime.database.write() as connection:
            upgraded = sa.update(own_metadata).where(own_metadata.c.key == "version")
            connection.execute(upgraded.values(value="99"))
        for write in (
            begun.commit,
            lambda: lake.table("t").append([{"id": 3}]),
            lambda: lake.create_table("u", {"id": "int"}),
            lambda: lake.jobs.register("t", "j", {"consumer": {"kind": "replica", "table": "c"}}),
            lambda: lake.configure(drop_retention=timedelta(days=2)),
            lake.sweep,
        ):
            with pytest.raises(tailrace.InvalidError, match="version 99, and this process knows"):
                write()
        assert lake.snapshot == before
        assert lake.table("t").to_arrow().to_pylist() == [{"id": 1}]
        if serving is not None:  # others take over what it ran
            wait_until(lambda: not lake.nodes(), what="the end of its heartbeats")


def make_older(lake: tailrace.Lake, version: int) -> None:
    """Take away what a version had not."""
    with lake._runtime.database.lock() as connection:
        drop_views(connection, CATALOG_PARTS)
        if version >= 5:
            connection.exec_driver_sql(f"CREATE VIEW {VIEW_PREFIX}freshness AS SELECT 1")
        if version < 11:
            for text in (
                "ALTER TABLE tailrace_file DROP COLUMN rewritten",
                "DROP INDEX tailrace_ix_last_rewrite",
                "ALTER TABLE tailrace_table DROP COLUMN last_rewrite_snapshot",
                "ALTER TABLE tailrace_segment DROP COLUMN next_row_id",
                "ALTER TABLE tailrace_segment DROP COLUMN first_ids",
            ):
                connection.exec_driver_sql(text)
        if 8 <= version < 11:
            connection.exec_driver_sql("ALTER TABLE tailrace_commit DROP COLUMN writer")
        if version < 9:
            connection.exec_driver_sql("ALTER TABLE tailrace_node DROP COLUMN fault")
        for part in CATALOG_PARTS:
            newer = [table for table in part.tables.sorted_tables if table.info["since"] > version]
            part.tables.drop_all(connection, tables=newer)
        if 4 <= version < 11:
            time = "VARCHAR" if connection.dialect.name == "sqlite" else "TIMESTAMPTZ"
            connection.exec_driver_sql(OLD_TASKS.format(time))
        key = own_metadata.c.key
        if 2 <= version < 11:
            news = st.counter.c.name.in_((st.TASKS, st.LOOKED))
            connection.execute(sa.delete(st.counter).where(news))
        if 2 <= version < 6:
            connection.execute(sa.delete(st.counter).where(st.counter.c.name == "segment"))
        if version < 2:
            connection.execute(sa.delete(own_metadata).where(key == "lake_id"))
        connection.execute(
            sa.update(own_metadata).where(key == "version").values(value=str(version))
        )


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_a_lake_of_an_older_version_is_brought_up_to_date(
    lake_args: LakeArgs, version: int
) -> None:
    with lake_args.connect() as lake:
        lake.create_table("orders", {"id": "int"}, primary_key="id").append([{"id": 1}])
        make_older(lake, version)
    with lake_args.connect() as lake:
        lake.configure(snapshot_retention=timedelta(0))
        assert lake.table("orders").to_arrow().to_pylist() == [{"id": 1}]
        consumer = {"kind": "replica", "table": "copy"}
        assert lake.jobs.register("orders", "copy", {"consumer": consumer})
        lake.run_until_fresh()
        assert lake.table("copy").to_arrow().to_pylist() == [{"id": 1}]
        assert {row["watermark"] for row in system_rows(lake.runtime, "freshness")} == {
            lake.snapshot
        }
        assert lake.purge().horizon == lake.snapshot
        assert [done.horizon for done in lake.purges()] == [lake.snapshot]


def test_an_older_process_commits_nothing_once_the_lake_was_upgraded(lake_args: LakeArgs) -> None:
    """One of before version 11 does not compare versions: the catalog refuses what it enters."""
    with lake_args.connect() as lake:
        make_older(lake, 10)
    with lake_args.connect() as lake:
        lake.create_table("t", {"id": "int"})
        before = lake.snapshot
        c = st.commit.c
        columns = (c.txn_id, c.tenant, c.snapshot, c.idempotency_key, c.committed_at)
        plain = sa.table(st.commit.name, *(sa.column(one.name, one.type) for one in columns))
        entry = {"txn_id": "old", "tenant": "default", "snapshot": before + 1}
        entered = sa.insert(plain).values(**entry, committed_at=lake.runtime.clock.now())

        def commit() -> None:
            with lake.runtime.database.lock() as connection:
                connection.execute(entered)

        with pytest.raises(tailrace.ConflictError, match=r"this.lake.was.upgraded"):
            commit()
        lake.table("t").append([{"id": 1}])
        assert lake.snapshot == before + 1


def test_what_a_purge_of_an_older_version_has_left_is_done(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        lake.configure(snapshot_retention=timedelta(0))
        table = lake.create_table("orders", {"id": "int"}, primary_key="id")
        table.append([{"id": 1}])
        table.delete([{"id": 1}])
        make_older(lake, 10)
        old = sa.table("tailrace_task", *map(sa.column, ("kind", "table_id", "snapshot")))
        time = sa.column("created_at", st.task.c.created_at.type)
        old.append_column(time)
        with lake.runtime.database.write() as connection:
            (table_id,) = connection.execute(sa.select(st.own_table.c.table_id)).scalars()
            left = {"kind": "purge", "table_id": table_id, "snapshot": 3}
            connection.execute(sa.insert(old).values(**left, created_at=lake.runtime.clock.now()))
    with lake_args.connect() as lake:
        c = st.task.c
        query = sa.select(c.task_id, c.type, c.table_id, c.state)
        with lake.runtime.database.read() as connection:
            found = connection.execute(query).all()
        assert found == [(1, "clean", table_id, TaskState.PENDING)]
        assert lake.purge().files == 1
        with lake.runtime.database.read() as connection:
            left = connection.execute(query.where(c.type == "clean")).all()
        assert left == []


def test_a_lake_that_duckdb_made_is_refused(sqlite_lake_args: LakeArgs) -> None:
    Path(sqlite_lake_args.url).mkdir()
    with duck.connect(sqlite_lake_args) as connection:
        connection.execute(
            f"ATTACH '{duck.address(sqlite_lake_args)}' AS l (DATA_PATH '{sqlite_lake_args.url}/d')"
        )
        connection.execute("CREATE TABLE l.t(a int)")
    with pytest.raises(tailrace.InvalidError, match="another program"):
        sqlite_lake_args.connect()


def test_the_place_of_the_objects_is_the_catalogs_word(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(tailrace.InvalidError, match="give data="):
        tailrace.connect(postgres_url)
    tailrace.connect(postgres_url, data=tmp_path / "a").close()
    tailrace.connect(postgres_url).close()
    tailrace.connect(postgres_url, data=f"file://{tmp_path}/a").close()
    with pytest.raises(tailrace.InvalidError, match="leave data= out"):
        tailrace.connect(postgres_url, data=tmp_path / "b")
