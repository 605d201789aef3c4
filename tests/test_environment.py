"""The servers and engines that other tests rely on are there, and are what they seem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import obstore
import psycopg
import pytest

from tests.support import duck, process
from tests.support.lakes import LakeArgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.postgres import PostgresServer
    from tests.support.s3 import S3Bucket


def test_spark_runs_python_and_sql(spark: SparkSession) -> None:
    assert spark.range(1000).repartition(4).count() == 1000
    through_python = spark.range(3).mapInArrow(lambda batches: batches, "id bigint")
    assert sorted(row.id for row in through_python.collect()) == [0, 1, 2]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_postgres_answers_on_loopback_only(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.execute("SHOW listen_addresses").fetchone() == (process.HOST,)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a process's owner is read from /proc")
def test_postgres_does_not_run_as_root(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        assert Path(f"/proc/{row[0]}").stat().st_uid != 0


def test_each_postgres_database_is_fresh(postgres_server: PostgresServer) -> None:
    first, second = (postgres_server.create_database() for _ in range(2))
    with psycopg.connect(postgres_server.url(first)) as connection:
        connection.execute("CREATE TABLE t (id int)")
    with psycopg.connect(postgres_server.url(second)) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)
    for name in (first, second):
        postgres_server.drop_database(name)


def test_s3_keeps_what_is_put(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store("some/prefix")
    obstore.put(store, "a b/ü.bin", b"payload")
    assert bytes(obstore.get(store, "a b/ü.bin").bytes()) == b"payload"
    assert bytes(obstore.get_range(store, "a b/ü.bin", start=3, length=2)) == b"lo"
    listed = [meta["path"] for batch in obstore.list(s3_bucket.store()) for meta in batch]
    assert listed == ["some/prefix/a b/ü.bin"]


def test_s3_refuses_to_overwrite_when_asked_to(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store()
    obstore.put(store, "once", b"1", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "once", b"2", mode="create")


def test_places_for_lakes_are_distinct(new_lake_args: Callable[[], LakeArgs]) -> None:
    assert new_lake_args() != new_lake_args()


def test_duckdb_reads_a_lake_at_a_snapshot(lake_args: LakeArgs) -> None:
    _write_with_duckdb(lake_args)
    with duck.attach(lake_args) as connection:
        newest = connection.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()
        assert newest is not None
        assert duck.read(connection, "t").to_pylist() == [{"id": 1}, {"id": 2}]
        assert duck.read(connection, "t", newest[0] - 1).to_pylist() == [{"id": 1}]
        with pytest.raises(duckdb.Error, match="read-only"):
            connection.execute("INSERT INTO lake.t VALUES (3)")


def test_duckdb_reads_a_lake_whose_objects_are_on_s3(
    postgres_url: str, s3_bucket: S3Bucket
) -> None:
    lake_args = LakeArgs(catalog="postgres", url=postgres_url, data=s3_bucket.url("lake"))
    _write_with_duckdb(lake_args, s3_bucket)
    with duck.attach(lake_args, s3=s3_bucket) as connection:
        assert duck.read(connection, "t").to_pylist() == [{"id": 1}, {"id": 2}]


def _write_with_duckdb(lake_args: LakeArgs, s3: S3Bucket | None = None) -> None:
    """Let DuckDB itself write a lake, to try the reader without our writer."""
    if s3 is None:
        lake_args.data_directory.mkdir(parents=True)
    data = lake_args.data or lake_args.data_directory
    with duck.connect(lake_args, s3=s3) as connection:
        options = f"DATA_PATH '{data}/', DATA_INLINING_ROW_LIMIT 0"
        connection.execute(f"ATTACH '{duck.address(lake_args)}' AS lake ({options})")
        connection.execute("CREATE TABLE lake.t (id BIGINT)")
        for number in (1, 2):
            connection.execute("INSERT INTO lake.t VALUES (?)", [number])


def test_a_server_that_dies_is_an_error_that_shows_its_log(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such luck; exit 3"]
    with pytest.raises(process.ServerFailedError, match="no such luck"):
        process.start(command, ready=lambda: False, log=tmp_path / "log")
