"""Damaged objects, and servers and locks that don't answer, give errors that say so."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import traceback
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import tailrace
from tailrace.objects import Storage
from tests.support import objects, process
from tests.support.lakes import LakeArgs
from tests.support.rows import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.s3 import S3Bucket

COLUMNS = {"id": "bigint", "v": "string"}
QUICK = tailrace.Settings(lock_timeout=timedelta(milliseconds=200))


def some(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": "a"} for number in ids]


def text_of(error: BaseException) -> str:
    """All that a user may see of an error, its causes included."""
    return "".join(traceback.format_exception(error))


# --- objects ----------------------------------------------------------------------------------


@pytest.fixture
def lake(sqlite_lake: tailrace.Lake) -> tailrace.Lake:
    """A lake whose table `t` has two files of three rows, with a delete file each."""
    table = sqlite_lake.create_table("t", COLUMNS, primary_key="id")
    for first in (1, 11):
        table.append(some(first, first + 1, first + 2))
        table.delete(some(first))
    return sqlite_lake


def forget(lake: tailrace.Lake) -> None:
    """Make the process one that has not read the objects before."""
    lake._runtime.deletes._cache.clear()
    lake._runtime.kept_files.clear()


def remove(first: Path, second: Path) -> None:
    first.unlink()


def truncate(first: Path, second: Path) -> None:
    first.write_bytes(first.read_bytes()[:-20])


def empty(first: Path, second: Path) -> None:
    first.write_bytes(b"")


def overwrite(first: Path, second: Path) -> None:
    first.write_bytes(b"\0" * first.stat().st_size)


def swap(first: Path, second: Path) -> None:
    """Put another file of the same table, with as many rows, in its place."""
    shutil.copyfile(second, first)


DAMAGES = [remove, truncate, empty, overwrite, swap]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("deletes", [False, True], ids=["data file", "delete file"])
def test_a_damaged_object_is_named_by_whatever_needs_it(
    lake: tailrace.Lake, damage: Callable[[Path, Path], None], deletes: bool
) -> None:
    first, second = (objects.delete_files if deletes else objects.data_files)(lake, "t")
    before = lake.snapshot
    damage(first, second)
    forget(lake)
    table = lake.table("t")
    uses: list[Callable[[], object]] = [
        table.to_arrow,
        lambda: table.append(some(2)),
        lambda: table.upsert(some(2)),
        lambda: table.delete(some(2)),
        lambda: table.changes(1, before, net=False),
    ]
    for use in uses:
        with pytest.raises(tailrace.CorruptError, match=first.name):
            use()
    assert lake.snapshot == before
    # What doesn't need the object works.
    assert table.append(some(99)) == before + 1
    assert table.delete(some(99)) == before + 2


def test_an_object_that_spark_cannot_read_is_named_where_the_store_runs_spark(
    lake: tailrace.Lake,
) -> None:
    first, second = objects.data_files(lake, "t")
    for damage in (truncate, remove):
        damage(first, second)
        forget(lake)
        with pytest.raises(tailrace.CorruptError, match=first.name):
            lake.table("t").delete("v = 'a'")


def test_a_file_that_holds_other_rows_than_the_catalog_says_is_damaged(
    lake: tailrace.Lake,
) -> None:
    lake.table("t").append(some(50))
    first, *_, single = objects.data_files(lake, "t")
    shutil.copyfile(single, first)
    forget(lake)
    with pytest.raises(tailrace.CorruptError, match="1 rows; the catalog says 3"):
        lake.table("t").to_arrow()


def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    with tailrace.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", COLUMNS)
        shutil.rmtree(tmp_path / "lake" / "data")
        (tmp_path / "lake" / "data").write_text("in the way")
        with pytest.raises(tailrace.UnavailableError, match="data/main/t"):
            table.append(some(1))
        (tmp_path / "lake" / "data").unlink()
        table.append(some(1))
        assert column(table.to_arrow(), "id") == [1]


# --- the catalog ------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(lake_args: LakeArgs) -> Iterator[None]:
    """Somebody holds the commit lock."""
    if lake_args.catalog == "sqlite":
        holder = sqlite3.connect(lake_args.catalog_file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.rollback()
        holder.close()
        return
    from tailrace.catalog.postgres import _ADVISORY_LOCK

    with psycopg.connect(lake_args.url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
        yield


def test_a_commit_waits_for_the_lock_only_so_long(lake_args: LakeArgs) -> None:
    with lake_args.connect(settings=QUICK) as lake:
        table = lake.create_table("t", COLUMNS, primary_key="id")
        table.append(some(1))
        before = lake.snapshot
        with locked(lake_args):
            with pytest.raises(tailrace.UnavailableError, match="did not answer"):
                table.append(some(2))
            # Readers don't wait for anybody.
            assert column(table.to_arrow(), "id") == [1]
            assert lake.snapshot == before
        table.append(some(2))
        assert column(table.to_arrow(), "id") == [1, 2]
        assert lake.sweep().deleted == 0


def test_a_connection_lost_in_a_commit_loses_the_commit_and_nothing_else(
    postgres_url: str, tmp_path: Path
) -> None:
    cut = False

    def cut_off(step: str) -> None:
        if step == "rows written" and cut:
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

    with tailrace.connect(postgres_url, data=tmp_path, on_step=cut_off) as lake:
        table = lake.create_table("t", COLUMNS, primary_key="id")
        table.append(some(1))
        before = lake.snapshot
        cut = True
        with pytest.raises(tailrace.UnavailableError):
            table.append(some(2))
        cut = False
        assert lake.snapshot == before
        table.append(some(2))
        assert column(table.to_arrow(), "id") == [1, 2]
        lake.sweep()
        assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_an_unreachable_postgres_is_unavailable_and_its_password_stays_secret(
    tmp_path: Path,
) -> None:
    url = f"postgresql://someone:hunter2@{process.HOST}:{process.free_port()}/db"
    with pytest.raises(tailrace.UnavailableError, match=r"someone:\*\*\*@") as caught:
        tailrace.connect(url, data=tmp_path, settings=QUICK)
    assert "hunter2" not in text_of(caught.value)


def test_a_wrong_database_is_unavailable_and_its_password_stays_secret(
    postgres_url: str, tmp_path: Path
) -> None:
    url = postgres_url.replace("@", ":hunter2@") + "_gone"
    with pytest.raises(tailrace.UnavailableError, match="does not exist") as caught:
        tailrace.connect(url, data=tmp_path)
    assert "hunter2" not in text_of(caught.value)


def test_a_file_that_is_no_catalog_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"not a database, but long enough to be one" * 30)
    with pytest.raises(tailrace.CorruptError, match=r"catalog\.sqlite"):
        tailrace.connect(tmp_path)


# --- S3 ---------------------------------------------------------------------------------------


def s3_lake(place: Path, url: str, endpoint: str) -> tailrace.Lake:
    return tailrace.connect(
        place,
        data=url,
        storage_options={
            "endpoint": endpoint,
            "access_key_id": "AKIDEXAMPLE",
            "secret_access_key": "hunter2",
            "region": "us-east-1",
            "allow_http": True,
        },
    )


def test_an_unreachable_s3_is_unavailable_and_its_key_stays_secret(tmp_path: Path) -> None:
    endpoint = f"http://{process.HOST}:{process.free_port()}"
    with s3_lake(tmp_path, "s3://bucket/lake", endpoint) as lake:
        table = lake.create_table("t", COLUMNS)
        before = lake.snapshot
        for use in (lambda: table.append(some(1)), lake.sweep):
            with pytest.raises(tailrace.UnavailableError, match="s3://bucket/lake/") as caught:
                use()
            assert "hunter2" not in text_of(caught.value)
        assert lake.snapshot == before
        assert table.to_arrow().num_rows == 0


def test_a_bucket_that_does_not_exist_is_unavailable(tmp_path: Path, s3_bucket: S3Bucket) -> None:
    with s3_lake(tmp_path, "s3://no-such-bucket/lake", s3_bucket.endpoint) as lake:
        table = lake.create_table("t", COLUMNS)
        with pytest.raises(tailrace.UnavailableError, match="s3://no-such-bucket/lake/"):
            table.append(some(1))
        with pytest.raises(tailrace.UnavailableError, match="s3://no-such-bucket/lake/"):
            lake.sweep()


def test_wrong_storage_options_are_told_without_their_values(tmp_path: Path) -> None:
    options = {"secret_access_key": "hunter2", "no_such_option": "hunter2"}
    with tailrace.connect(tmp_path, data="s3://bucket/lake", storage_options=options) as lake:
        table = lake.create_table("t", COLUMNS)
        with pytest.raises(tailrace.InvalidError, match="no_such_option") as caught:
            table.append(some(1))
        assert "hunter2" not in text_of(caught.value)


def test_an_answer_of_the_wrong_length_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that cuts, or pads: the object itself is well."""
    storage = Storage("s3://bucket/lake/")
    storage._store = MemoryStore()
    with storage.open_write("a.parquet") as sink:
        pq.write_table(pa.table({"id": list(range(1000))}), sink.native)
    whole = obstore.get_range

    def read() -> pa.Table:
        with storage.open_read("a.parquet") as source:
            return pq.read_table(source)

    assert read().num_rows == 1000
    for answer in (lambda data: data[:-1], lambda data: data + b"x", lambda _: b""):

        def ranged(*args: Any, answer: Any = answer, **options: Any) -> bytes:
            return bytes(answer(bytes(whole(*args, **options))))

        monkeypatch.setattr(obstore, "get_range", ranged)
        with pytest.raises(tailrace.UnavailableError, match=r"a\.parquet"):
            read()
