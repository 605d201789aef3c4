"""Segments are built and merged: by whom, how many, and when again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.indexes import tables as t
from tests.indexes.model import keys
from tests.indexes.review import ROWS, fill, text_index, vector_index
from tests.support.process import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


def test_many_rows_are_built_in_spark_tasks(sqlite_lake: tailrace.Lake) -> None:
    spark = sqlite_lake.spark
    table = sqlite_lake.create_table(
        "doc", {"id": "bigint", "text": "string", "v": "array<float>"}, primary_key="id"
    )
    table.append(
        spark.range(120_000).selectExpr(
            "id",
            "if(id % 10 = 0, null, concat('text number', id % 100, ' of row', id)) as text",
            "array(cast(id as float), cast(1 as float)) as v",
        )
    )
    words = sqlite_lake.create_index("doc", "words", using="fulltext", columns="text")
    near = sqlite_lake.create_index(
        "doc", "near", using="vector", columns="v", options={"metric": "l2"}
    )
    sqlite_lake.run_until_fresh()
    assert words.status().segments == 2  # a task each
    assert words.status().rows == 108_000
    assert words.search("number7", 2000).num_rows == 1200
    assert keys(words.search("row777")) == [777]
    assert near.status().rows == 120_000
    assert keys(near.search([5000.2, 1], 3)) == [5000, 5001, 4999]
    words.rebuild()
    near.rebuild()
    assert keys(words.search("row777")) == [777]
    assert keys(near.search([5000.2, 1], 3)) == [5000, 5001, 4999]


def test_small_segments_are_merged_and_deleted_rows_go(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = tailrace.Settings(merge_segments=4)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = fill(lake)
        words, near = text_index(lake), vector_index(lake)
        for number in range(10, 40):
            table.append([{**ROWS[0], "id": number}])
            lake.run_until_fresh()
            assert words.status().segments < 4
            assert near.status().segments < 4
        assert words.search("broken", 100).num_rows == 31
        table.delete("id >= 20")
        lake.run_until_fresh()
        assert words.status().rows == words.search("broken", 100).num_rows + 2 == 13
        table.delete("true")
        lake.run_until_fresh()
        assert words.search("broken", 100).num_rows == 0
        assert words.status().segments == 0
        table.append([ROWS[0]])
        lake.run_until_fresh()
        assert keys(words.search("broken")) == keys(near.search([1, 0])) == [1]


def test_what_was_built_without_deleted_rows_is_not_built_again(
    sqlite_lake: tailrace.Lake,
) -> None:
    columns = {"id": "int", "note": "string"}
    table = sqlite_lake.create_table("doc", columns, primary_key="id")
    table.append([{"id": n, "note": None if n % 3 else "words"} for n in range(300)])
    words = sqlite_lake.create_index("doc", "words", using="fulltext", columns="note")
    words.wait()

    def segments() -> list[tuple[int, int]]:
        with sqlite_lake._runtime.database.read() as connection:
            query = sa.select(t.segment.c.segment_id, t.segment.c.row_count).where(
                t.segment.c.end_snapshot.is_(None)
            )
            return [tuple(row) for row in connection.execute(query)]  # type: ignore[misc]

    assert segments() == [(1, 100)]
    table.delete("id < 150")
    sqlite_lake.run_until_fresh()
    assert segments() == [(2, 50)]  # built once: half of it was gone
    for number in range(300, 303):
        table.append([{"id": number, "note": "words"}])
        sqlite_lake.run_until_fresh()
    assert segments() == [(2, 50), (3, 1), (4, 1), (5, 1)]


def test_a_merge_makes_fewer_segments_whatever_runs_at_once(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.indexes import build

    monkeypatch.setattr(build, "_parallelism", lambda _spark: 64)
    monkeypatch.setattr(build, "_TASK_ROWS", 100)
    monkeypatch.setattr(build, "_LOCAL_ROWS", 1000)
    monkeypatch.setattr(build, "run_tasks", lambda _spark, run, shares: list(map(run, shares)))
    table = sqlite_lake.create_table("doc", {"id": "int", "text": "string"}, primary_key="id")
    table.append([{"id": n, "text": f"row{n}"} for n in range(20_000)])
    words = sqlite_lake.create_index("doc", "words", using="fulltext", columns="text")
    words.wait()
    assert words.status().segments == 7  # not so many that they are merged at once
    table.append([{"id": n, "text": f"row{n}"} for n in range(20_000, 24_000)])
    words.wait()
    first = words.status().segments
    assert first < 14
    table.append([{"id": 99_999, "text": "last"}])
    words.wait()
    assert words.status().segments <= first + 1
    assert keys(words.search("row23999")) == [23_999]


def test_what_an_older_version_wrote_is_built_anew_by_a_server(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    words = text_index(sqlite_lake)
    with sqlite_lake.runtime.database.write() as connection:
        connection.execute(sa.update(t.segment).values(format="fulltext-0 tantivy-0.1"))
    sqlite_lake._indexes._context.opener.forget()
    with pytest.raises(tailrace.UnavailableError, match="built anew in the background"):
        words.search("late")

    def is_searchable() -> bool:
        try:
            return keys(words.search("late")) == [1]
        except tailrace.UnavailableError:
            return False

    with sqlite_lake.serving():
        wait_until(is_searchable, what="a new segment")
