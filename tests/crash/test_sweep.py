"""The sweep deletes what nobody can need any more, and nothing else."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tests.support.clock import MovableClock
from tests.support.lakes import configure
from tests.support.process import wait_until
from tests.support.rows import column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

TIMEOUT, GRACE = timedelta(minutes=15), timedelta(hours=1)
COLUMNS = {"id": "bigint", "v": "string"}
MOMENT = timedelta(minutes=2)  # more than any test takes


def some(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": "a"} for number in ids]


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def lake(lake_args: LakeArgs, clock: MovableClock) -> Iterator[tailrace.Lake]:
    """A lake with a table `t` that holds 1 to 5 in one file."""
    with lake_args.connect(clock=clock) as opened:
        opened.configure(transaction_timeout=TIMEOUT, object_grace=GRACE)
        opened.create_table("t", COLUMNS, primary_key="id").append(some(1, 2, 3, 4, 5))
        yield opened


def objects(lake: tailrace.Lake) -> set[str]:
    return set(lake._runtime.storage.list())


def heartbeats(lake: tailrace.Lake) -> list[Any]:
    with lake._runtime.database.read() as connection:
        return list(connection.execute(sa.select(t.transaction.c.heartbeat_at)).scalars())


NOTHING = tailrace.Sweep(deleted=0, expired=0)


def test_a_lake_without_leftovers_is_left_alone(lake: tailrace.Lake, clock: MovableClock) -> None:
    table = lake.table("t")
    table.append(some(6))
    table.delete(some(6))  # the file's last row: the file itself ends
    lake.create_table("gone", COLUMNS).append(some(1))
    lake.drop_table("gone")
    there, newest = objects(lake), lake.snapshot
    clock.advance(timedelta(days=365))
    assert lake.sweep() == NOTHING
    assert objects(lake) == there
    # What has ended is still there for older snapshots.
    assert column(table.to_arrow(at=newest - 4), "id") == [1, 2, 3, 4, 5, 6]
    assert len(table.to_arrow(at=newest)) == 5


def test_an_expired_transaction_cannot_commit(lake: tailrace.Lake, clock: MovableClock) -> None:
    before, there = lake.snapshot, objects(lake)
    txn = lake.transaction()
    txn.table("t").append(some(6))
    txn.table("t").delete(some(1))
    # As if its process had been suspended: no heartbeat comes.
    lake._heartbeat.forget(txn._work.id)
    clock.advance(TIMEOUT + MOMENT)
    assert lake.sweep() == tailrace.Sweep(deleted=1, expired=1)
    with pytest.raises(tailrace.ConflictError, match="expired"):
        txn.commit()
    assert lake.snapshot == before
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5]
    lake.sweep()
    assert objects(lake) == there


def test_a_transaction_that_gives_a_sign_of_life_is_left_alone(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    with lake.transaction() as txn:
        txn.table("t").append(some(6))
        for _ in range(3):
            clock.advance(TIMEOUT - MOMENT)
            lake._heartbeat.beat()
            clock.advance(2 * MOMENT)
            assert lake.sweep() == NOTHING
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 6]


def test_a_slow_transaction_gives_signs_of_life_by_itself(
    lake_args: LakeArgs, lake: tailrace.Lake
) -> None:
    timeout = timedelta(seconds=3)
    configure(lake, transaction_timeout=timeout)
    with lake_args.connect() as other, other.transaction() as txn:
        txn.table("t").append(some(6))
        (registered,) = heartbeats(lake)
        wait_until(
            lambda: heartbeats(lake)[0] - registered > timeout,
            what="a heartbeat after the timeout",
        )
        with lake_args.connect() as sweeper:
            assert sweeper.sweep() == NOTHING
    assert heartbeats(lake) == []
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, 5, 6]


def test_a_sweep_beside_commits_takes_nothing_from_them(
    lake_args: LakeArgs, lake: tailrace.Lake
) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def sweep_on() -> None:
        with lake_args.connect() as sweeper:
            while not stop.is_set():
                try:
                    assert sweeper.sweep() == NOTHING
                except BaseException as error:  # noqa: BLE001  (told in the test's own thread)
                    failed.append(error)
                    return

    sweeping = threading.Thread(target=sweep_on)
    sweeping.start()
    try:
        for number in range(10, 25):
            with lake.transaction() as txn:
                txn.table("t").upsert(some(1, number))
                txn.table("t").delete(some(number - 5))
    finally:
        stop.set()
        sweeping.join()
    assert not failed
    assert column(lake.table("t").to_arrow(), "id") == [1, 2, 3, 4, *range(20, 25)]


def test_replaced_delete_files_are_deleted_after_the_grace_period(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    table = lake.table("t")
    for number in (1, 2, 3):
        table.delete(some(number))
    there = objects(lake)
    assert len(there) == 4  # the data file, and three delete files of which two are replaced
    clock.advance(GRACE - MOMENT)
    assert lake.sweep() == NOTHING
    table.delete(some(4))  # replaces the third, whose grace begins only now
    clock.advance(2 * MOMENT)
    assert lake.sweep() == tailrace.Sweep(deleted=2, expired=0)
    assert lake.sweep() == NOTHING
    clock.advance(GRACE)
    assert lake.sweep() == tailrace.Sweep(deleted=1, expired=0)
    assert len(objects(lake)) == 2
    first = lake.snapshot - 4
    for deleted in range(5):
        at_that_time = table.to_arrow(at=first + deleted)
        assert column(at_that_time, "id") == [1, 2, 3, 4, 5][deleted:]


def test_a_reader_that_began_before_a_replacement_reads_on(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    table.delete(some(1))
    with lake.transaction() as txn:
        mine = txn.table("t")
        mine.to_arrow()
        table.delete(some(2))
        lake.sweep()
        lake._runtime.deletes._cache.clear()  # what it has in memory proves nothing
        assert column(mine.to_arrow(), "id") == [2, 3, 4, 5]


def test_a_losing_transaction_leaves_nothing_to_sweep(
    lake: tailrace.Lake, clock: MovableClock
) -> None:
    lake.table("t").delete(some(5))
    loser = lake.transaction()
    loser.table("t").append(some(6))
    loser.table("t").delete(some(1))
    lake.table("t").delete(some(1))
    there = objects(lake)
    with pytest.raises(tailrace.ConflictError):
        loser.commit()
    assert objects(lake) < there
    clock.advance(TIMEOUT + MOMENT)
    assert lake.sweep() == NOTHING


def test_objects_of_other_programs_are_not_ours_to_delete(
    lake: tailrace.Lake, lake_args: LakeArgs, clock: MovableClock
) -> None:
    stranger = lake_args.data_directory / "main" / "notes.parquet"
    stranger.write_bytes(b"mine")
    clock.advance(timedelta(days=365))
    assert lake.sweep() == NOTHING
    assert stranger.read_bytes() == b"mine"


def test_a_spark_write_that_fails_half_way_is_swept(
    sqlite_lake: tailrace.Lake, spark: SparkSession
) -> None:
    """Tasks that had succeeded have written objects that the driver never heard of."""
    from pyspark.sql import functions as F

    sqlite_lake.create_table("p", {"id": "bigint"})
    before = sqlite_lake.snapshot
    # The second task fails, and the error says which value it stumbled over.
    failing = spark.range(0, 100, 1, 2).select(
        F.when(F.col("id") == 99, F.raise_error(F.lit("no 99 today")))
        .otherwise(F.col("id"))
        .cast("bigint")
        .alias("id")
    )
    with pytest.raises(Exception, match="no 99 today"):
        sqlite_lake.table("p").append(failing)
    assert sqlite_lake.snapshot == before
    assert heartbeats(sqlite_lake) == []
    left = len(objects(sqlite_lake))
    assert sqlite_lake.sweep() == tailrace.Sweep(deleted=left, expired=0)
    assert objects(sqlite_lake) == set()
    assert sqlite_lake.table("p").to_arrow().num_rows == 0
