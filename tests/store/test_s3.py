"""A lake whose objects are on S3: the same tables, through a store that Spark itself can't open."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
import pytest

import tailrace
from tests.support import children, duck, victim
from tests.support.clock import MovableClock
from tests.support.lakes import LakeArgs
from tests.support.rows import bag, column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.s3 import S3Bucket

COLUMNS = {"id": "bigint", "v": "string", "tags": "array<string>"}
PREFIX = "some/lake"


@pytest.fixture
def options(s3_bucket: S3Bucket) -> dict[str, Any]:
    return {
        "endpoint": s3_bucket.endpoint,
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
    }


@pytest.fixture
def args(tmp_path: Path, s3_bucket: S3Bucket) -> LakeArgs:
    return LakeArgs(catalog="sqlite", url=str(tmp_path / "lake"), data=s3_bucket.url(PREFIX))


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(
    args: LakeArgs, options: dict[str, Any], spark: SparkSession, clock: MovableClock
) -> Iterator[tailrace.Lake]:
    with args.connect(storage_options=options, spark=spark, clock=clock) as opened:
        yield opened


def some(*ids: int, v: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "v": v, "tags": [v, None]} for number in ids]


def objects(bucket: S3Bucket) -> set[str]:
    return {str(entry["path"]) for page in obstore.list(bucket.store()) for entry in page}


def test_writes_reads_and_time_travel_without_spark(
    lake: tailrace.Lake, args: LakeArgs, s3_bucket: S3Bucket
) -> None:
    table = lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1, 2, 3))
    first = lake.snapshot
    table.upsert(some(3, 4, v="b"))
    table.delete(some(1))
    with lake.transaction() as txn:
        txn.table("t").upsert(some(2, v="c"))
        txn.create_table("u", COLUMNS).append(some(9))
        assert column(txn.table("t").to_arrow(), "v") == ["b", "b", "c"]
    history = [[(1, "a"), (2, "a"), (3, "a")], [(1, "a"), (2, "a"), (3, "b"), (4, "b")]]
    history += [[(2, "a"), (3, "b"), (4, "b")], [(2, "c"), (3, "b"), (4, "b")]]
    with duck.attach(args, s3=s3_bucket) as reader:
        for at, expected in enumerate(history, start=first):
            mine = table.to_arrow(at=at)
            assert bag(mine.select(["id", "v"])) == expected
            assert bag(duck.read(reader, "t", at)) == bag(mine)
        assert bag(duck.read(reader, "u")) == bag(lake.table("u").to_arrow())
    assert all(name.startswith(f"{PREFIX}/main/") for name in objects(s3_bucket))
    with pytest.raises(tailrace.InvalidError, match="'id': 4"):
        table.append(some(4))


def test_reads_and_the_change_feed_through_spark(lake: tailrace.Lake, args: LakeArgs) -> None:
    table = lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1, 2, 3))
    first = lake.snapshot
    table.add_column("more", "int")
    table.rename_column("v", "w")
    table.upsert([{"id": 3, "w": "b", "tags": None, "more": 7}])
    table.delete("w = 'a' AND id < 2")
    # Old files lack the new column and know the renamed one by its old name.
    assert bag(table.to_df().select("id", "w", "more").toArrow()) == [(2, "a", None), (3, "b", 7)]
    assert bag(table.to_df(at=first).toArrow()) == bag(table.to_arrow(at=first))
    changes = {
        ("delete", 1, "a", None),
        ("delete", 3, "a", None),
        ("insert", 3, "b", 7),
    }
    options = lake._runtime.storage.options
    large = tailrace.Settings(local_rows=-1, local_keys=-1)
    with args.connect(storage_options=options, spark=lake.spark, settings=large) as through_spark:
        for reader in (lake, through_spark):
            feed = reader.table("t").changes(first).select("_change", "id", "w", "more")
            assert {tuple(row) for row in feed.collect()} == changes
        # Also the search for keys, and the result of a scan that is too large for the driver.
        through_spark.table("t").upsert([{"id": 2, "w": "c", "tags": [], "more": 8}])
        found = through_spark.table("t").to_arrow()
    assert bag(found.select(["id", "w", "more"])) == [(2, "c", 8), (3, "b", 7)]
    assert bag(found) == bag(table.to_arrow())


def test_spark_writes_to_s3(
    lake: tailrace.Lake, args: LakeArgs, s3_bucket: S3Bucket, spark: SparkSession
) -> None:
    table = lake.create_table("t", COLUMNS, primary_key="id")
    rows = spark.range(1000).selectExpr("id", "'spark' AS v", "array('x', NULL) AS tags")
    table.append(rows)
    table.upsert(rows.where("id >= 990").selectExpr("id + 5 AS id", "'more' AS v", "NULL AS tags"))
    table.delete(rows.where("id < 900"))
    expected = [(id_, "spark" if id_ < 995 else "more") for id_ in range(900, 1005)]
    assert bag(table.to_arrow().select(["id", "v"])) == expected
    with duck.attach(args, s3=s3_bucket) as reader:
        assert bag(duck.read(reader, "t").select(["id", "v"])) == expected
    with pytest.raises(tailrace.InvalidError, match="exist"):
        table.append(rows.where("id = 950"))


def test_spark_shows_no_secret_in_a_plan(
    lake: tailrace.Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    options = lake._runtime.storage.options
    options["secret_access_key"] = "hunter2"
    lake._runtime.storage._store = None
    table = lake.create_table("t", COLUMNS)
    table.append(some(1))
    frame = table.to_df()
    frame.explain(extended=True)
    assert "hunter2" not in capsys.readouterr().out
    assert frame.count() == 1


def test_the_sweep_cleans_up_on_s3(
    lake: tailrace.Lake, s3_bucket: S3Bucket, clock: MovableClock
) -> None:
    table = lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1, 2, 3))
    there = objects(s3_bucket)
    abandoned = lake.transaction()
    abandoned.table("t").append(some(4))
    assert len(objects(s3_bucket)) == len(there) + 1
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
    # As if its process had ended.
    lake._heartbeat.forget(abandoned._work.id)
    clock.advance(timedelta(hours=24))
    stranger = s3_bucket.store("some/lakeside")
    obstore.put(stranger, "main/0123456789abcdef-0123456789abcdef.parquet", b"not ours")
    assert lake.sweep() == tailrace.Sweep(deleted=1, expired=1)
    assert objects(s3_bucket) - there == {
        "some/lakeside/main/0123456789abcdef-0123456789abcdef.parquet"
    }
    with pytest.raises(tailrace.ConflictError, match="expired"):
        abandoned.commit()
    table.delete(some(1))
    table.delete(some(2))
    clock.advance(timedelta(hours=24))
    assert lake.sweep() == tailrace.Sweep(deleted=1, expired=0)  # the replaced delete file
    assert column(table.to_arrow(), "id") == [3]


def test_an_object_of_many_parts_is_whole(lake: tailrace.Lake) -> None:
    table = lake.create_table("blob", {"id": "int", "data": "binary"})
    blobs = [random.Random(number).randbytes(8_000_000) for number in range(4)]
    table.append([{"id": number, "data": data} for number, data in enumerate(blobs)])
    assert dict(bag(table.to_arrow())) == dict(enumerate(blobs))


def test_a_rolled_back_transaction_leaves_no_object(
    lake: tailrace.Lake, s3_bucket: S3Bucket
) -> None:
    table = lake.create_table("t", COLUMNS)
    table.append(some(1))
    there = objects(s3_bucket)
    txn = lake.transaction()
    txn.table("t").append(some(2))
    txn.rollback()
    assert objects(s3_bucket) == there


def test_a_damaged_object_on_s3_is_named(lake: tailrace.Lake, s3_bucket: S3Bucket) -> None:
    table = lake.create_table("t", COLUMNS, primary_key="id")
    table.append(some(1))
    (name,) = objects(s3_bucket)
    whole = bytes(obstore.get(s3_bucket.store(), name).bytes())
    obstore.put(s3_bucket.store(), name, whole[: len(whole) // 2])
    with pytest.raises(tailrace.CorruptError, match=name):
        table.to_arrow()
    with pytest.raises(tailrace.CorruptError, match=name):
        table.delete("v = 'a'")
    obstore.delete(s3_bucket.store(), name)
    with pytest.raises(tailrace.CorruptError, match=name):
        table.upsert(some(1))
    with pytest.raises(tailrace.CorruptError, match=name):
        table.delete("v = 'a'")


def test_settings_for_s3_come_from_the_environment(
    postgres_url: str, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the catalog may be PostgreSQL: nothing is left on this machine."""
    for name, value in s3_bucket.environment.items():
        monkeypatch.setenv(name, value)
    args = LakeArgs(catalog="postgres", url=postgres_url, data=s3_bucket.url())
    with args.connect() as lake:
        table = lake.create_table("t", COLUMNS, primary_key="id")
        table.append(some(1, 2))
        table.delete(some(1))
        assert column(table.to_arrow(), "id") == [2]
        with duck.attach(args, s3=s3_bucket) as reader:
            assert column(duck.read(reader, "t"), "id") == [2]
    # Opened again, a lake knows where its objects are.
    with tailrace.connect(postgres_url) as again:
        assert column(again.table("t").to_arrow(), "id") == [2]


def test_an_upload_that_is_cut_off_leaves_no_object(
    s3_bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_bucket.environment.items():
        monkeypatch.setenv(name, value)
    place = LakeArgs(catalog="sqlite", url=str(tmp_path / "lake"), data=s3_bucket.url(PREFIX))
    with place.connect() as lake:
        table = lake.create_table("log", {"n": "bigint", "text": "string"})
        child = children.start(
            victim.run_with_environment,
            s3_bucket.environment,
            place,
            victim.give_up,
            (1,),
            victim.HALF_WRITTEN,
            1,
        )
        assert children.join(child) == -9
        assert objects(s3_bucket) == set()
        table.append([{"n": 1, "text": "again"}])
        assert bag(table.to_arrow()) == [(1, "again")]
