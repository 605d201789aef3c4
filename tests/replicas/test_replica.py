"""Replicas: a choice of columns and rows, and sources that change their shape."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support import counted, duck
from tests.support.jobs import orders, replica, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

COLUMNS = {"id": "bigint", "part": "string", "amount": "decimal(10,2)", "note": "string"}


def made(lake: tailrace.Lake) -> tailrace.Table:
    table = lake.create_table("orders", COLUMNS, primary_key=["id", "part"])
    table.append(
        [{"id": i, "part": "ab"[i % 2], "amount": i, "note": f"note {i}"} for i in range(10)]
    )
    return table


def ids(lake: tailrace.Lake, table: str) -> list[int]:
    return sorted(lake.table(table).to_arrow().column("id").to_pylist())


def test_columns_and_rows_can_be_chosen(lake: tailrace.Lake) -> None:
    table = made(lake)
    options = {"kind": "replica", "table": "big", "columns": ["amount"], "where": "note <> 'no'"}
    lake.jobs.register("orders", "big", {"consumer": {**options, "where": "amount >= 5"}})
    lake.run_until_fresh()
    assert list(lake.table("big").columns) == ["id", "part", "amount"]
    assert lake.table("big").primary_key == ["id", "part"]
    assert ids(lake, "big") == [5, 6, 7, 8, 9]
    # One row leaves by its value, one enters, one changes inside, one is deleted.
    table.upsert(
        [
            {"id": 9, "part": "b", "amount": 1, "note": ""},
            {"id": 1, "part": "b", "amount": 50, "note": ""},
            {"id": 8, "part": "a", "amount": 80, "note": ""},
        ]
    )
    table.delete([{"id": 5, "part": "b"}])
    lake.run_until_fresh()
    assert ids(lake, "big") == [1, 6, 7, 8]
    expected = table.to_df().where("amount >= 5").select("id", "part", "amount").toArrow()
    assert sorted(expected.to_pylist(), key=str) == sorted(
        lake.table("big").to_arrow().to_pylist(), key=str
    )


def test_small_changes_of_some_rows_need_no_spark(
    sqlite_lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.store.spark_session._start_spark", _no_spark)
    with sqlite_lake_args.connect() as lake:
        table = made(lake)
        options = {"kind": "replica", "table": "big", "where": "amount >= 5 AND note <> 'no'"}
        lake.jobs.register("orders", "big", {"consumer": options})
        lake.run_until_fresh()
        assert ids(lake, "big") == [5, 6, 7, 8, 9]
        table.upsert([{"id": n, "part": "b", "amount": 9, "note": "no" * (n % 2)} for n in (5, 4)])
        lake.run_until_fresh()
        assert ids(lake, "big") == [4, 6, 7, 8, 9]


def _no_spark() -> None:
    raise AssertionError("Spark was asked for")


def test_a_renamed_source_column_is_still_followed(sqlite_lake: tailrace.Lake) -> None:
    table = made(sqlite_lake)
    sqlite_lake.jobs.register("orders", "all", replica("copy"))
    some = {"kind": "replica", "table": "some", "columns": ["amount"]}
    sqlite_lake.jobs.register("orders", "some", {"consumer": some})
    sqlite_lake.run_until_fresh()
    table.rename_column("amount", "total")
    table.rename_column("part", "piece")
    table.add_column("extra", "int")
    table.upsert([{"id": 1, "piece": "b", "total": 99, "note": "renamed", "extra": 1}])
    table.delete([{"id": 2, "piece": "a"}])
    sqlite_lake.run_until_fresh()
    copy = {row["id"]: row for row in sqlite_lake.table("copy").to_arrow().to_pylist()}
    assert set(copy) == {0, 1, 3, 4, 5, 6, 7, 8, 9}
    assert (int(copy[1]["amount"]), copy[1]["note"]) == (99, "renamed")
    assert ids(sqlite_lake, "some") == sorted(copy)


def test_a_dropped_source_column_is_a_clear_error(sqlite_lake: tailrace.Lake) -> None:
    table = made(sqlite_lake)
    sqlite_lake.jobs.register("orders", "copy", replica("copy"))
    sqlite_lake.run_until_fresh()
    table.drop_column("note")
    table.delete([{"id": 1, "part": "b"}])
    with pytest.raises(tailrace.JobFailedError, match="no longer has the column 'note'"):
        sqlite_lake.run_until_fresh()
    assert sqlite_lake.jobs.status("orders", "copy").state == "error"


def test_a_widened_source_column_is_widened_in_the_copy(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", {"id": "bigint", "n": "int"}, primary_key="id")
    table.append([{"id": 1, "n": 1}])
    sqlite_lake.jobs.register("t", "copy", replica("copy"))
    sqlite_lake.run_until_fresh()
    table.widen_column("n", "bigint")
    table.append([{"id": 2, "n": 2**40}])
    sqlite_lake.run_until_fresh()
    assert same(sqlite_lake, "t", "copy")
    assert sqlite_lake.table("copy").columns["n"] == "bigint"


def test_a_condition_whose_column_is_another_now_is_an_error(sqlite_lake: tailrace.Lake) -> None:
    table = made(sqlite_lake)
    consumer = {"kind": "replica", "table": "big", "where": "note like 'note%'"}
    sqlite_lake.jobs.register("orders", "big", {"consumer": consumer})
    sqlite_lake.run_until_fresh()
    table.rename_column("note", "remark")
    table.add_column("note", "string")
    table.append([{"id": 50, "part": "a", "amount": 1, "remark": "note 50", "note": None}])
    with pytest.raises(tailrace.JobFailedError, match="is another one now"):
        sqlite_lake.run_until_fresh()


def test_a_table_without_a_key_has_no_replica(sqlite_lake: tailrace.Lake) -> None:
    sqlite_lake.create_table("plain", COLUMNS)
    with pytest.raises(tailrace.InvalidError, match="has no primary key: a replica needs one"):
        sqlite_lake.jobs.register("plain", "copy", replica("copy"))


@pytest.mark.parametrize(("seed", "local_rows"), [(1, 200_000), (2, 200_000), (3, 4)])
def test_a_replica_equals_its_source_after_any_history(
    sqlite_lake_args: LakeArgs, spark: SparkSession, seed: int, local_rows: int
) -> None:
    random = Random(seed)
    settings = tailrace.Settings(local_rows=local_rows)  # 4: everything through Spark
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = orders(lake, rows=0)
        lake.jobs.register("orders", "copy", replica("copy"))
        odd: dict[str, Any] = {"kind": "replica", "table": "odd", "where": "id % 2 = 1"}
        lake.jobs.register("orders", "odd", {"consumer": odd})
        for _ in range(3):
            for _ in range(random.randint(1, 4)):
                some = random.sample(range(30), random.randint(1, 12))
                if random.random() < 0.3:
                    table.delete([{"id": i} for i in some])
                else:
                    table.upsert([{"id": i, "v": random.choice("xyz")} for i in some])
            lake.run_until_fresh()
            assert same(lake, "orders", "copy")
            assert ids(lake, "odd") == [i for i in ids(lake, "orders") if i % 2]
        with duck.attach(sqlite_lake_args) as connection:
            query = "SELECT * FROM lake.main.{} ORDER BY id"
            ours, theirs = (
                connection.sql(query.format(name)).fetchall() for name in ("orders", "copy")
            )
            assert ours == theirs
    counted.count("histories of a table with replicas")
