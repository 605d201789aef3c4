"""Making, watching and dropping indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.indexes.model import keys
from tests.indexes.review import COLUMNS, ROWS, fill, text_index, vector_index
from tests.support.lakes import configure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs
    from tests.support.s3 import S3Bucket


def test_both_kinds_on_every_catalog(lake: tailrace.Lake) -> None:
    table = fill(lake)
    words, near = text_index(lake), vector_index(lake)
    assert keys(words.search("delivery")) == [2, 1]  # the shorter text first
    assert keys(near.search([1, 0.05], 2)) == [1, 3]
    snapshot = table.upsert([{**ROWS[2], "note": "a parcel", "v": [-1.0, 0.0]}])
    assert snapshot is not None
    assert keys(words.search("parcel nothing")) == [3]
    assert keys(words.search("parcel", freshness="latest")) == [3]
    assert keys(words.search("nothing", freshness="latest")) == []
    assert not words.status().is_fresh
    assert words.status().pending_rows == 1
    words.wait(snapshot)
    assert words.status().is_fresh
    assert words.watermark == lake.snapshot
    assert [index.name for index in lake.indexes()] == ["near", "words"]
    assert lake.find_index("words").name == lake.find_index("main.review.words").name == "words"
    lake.drop_index("review", "words")
    with pytest.raises(tailrace.NotFoundError, match="was dropped"):
        words.search("x")
    lake.drop_table("review")
    assert lake.indexes() == []


def test_an_index_on_s3(sqlite_lake_args: LakeArgs, s3_bucket: S3Bucket) -> None:
    options = {
        "endpoint": s3_bucket.endpoint,
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
    }
    with sqlite_lake_args.connect(data=s3_bucket.url("lake"), storage_options=options) as lake:
        fill(lake)
        assert keys(text_index(lake).search("broken", columns=["title"])) == [1]
        assert keys(vector_index(lake).search([0, 1], 1)) == [2]


def test_what_is_not_built_yet_says_so(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    index = sqlite_lake.create_index("review", "words", using="fulltext", columns=["note"])
    with pytest.raises(tailrace.UnavailableError, match=r"not built yet: 4 rows to index"):
        index.search("late")
    assert index.status().watermark is None
    assert index.status().pending_rows == 4
    index.wait()
    assert index.status().pending_rows == 0


def test_a_bad_definition_creates_nothing(read_only_review: tailrace.Lake) -> None:
    with pytest.raises(tailrace.InvalidError, match="'colour'"):
        read_only_review.create_index(
            "review", "another", using="fulltext", columns=["note"], options={"colour": 1}
        )
    assert len(read_only_review.indexes()) == 2


def test_a_name_is_given_once(read_only_review: tailrace.Lake) -> None:
    with pytest.raises(tailrace.InvalidError, match="already"):
        read_only_review.create_index("review", "WORDS", using="fulltext", columns="note")
    with pytest.raises(tailrace.NotFoundError, match="no index"):
        read_only_review.index("review", "nothing")


def test_a_purge_removes_what_no_snapshot_shows(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    from datetime import timedelta

    settings = tailrace.Settings(merge_segments=2)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        configure(lake, snapshot_retention=timedelta(0), object_grace=timedelta(0))
        table = fill(lake)
        words = text_index(lake)
        for number in range(10, 16):
            table.append([{**ROWS[0], "id": number}])
            lake.run_until_fresh()
        lake.purge()
        lake.purge()

        def objects() -> list[Path]:
            return list(sqlite_lake_args.data_directory.rglob("*.segment"))

        assert len(objects()) == words.status().segments
        assert lake.sweep().deleted == 0
        assert words.search("broken", 100).num_rows == 7
        lake.drop_index("review", "words")
        table.append([{**ROWS[0], "id": 99}])
        lake.purge()
        lake.purge()
        assert objects() == []


def test_a_table_that_is_dropped_in_a_transaction_takes_its_indexes_along(
    sqlite_lake: tailrace.Lake,
) -> None:
    fill(sqlite_lake)
    text_index(sqlite_lake)
    vector_index(sqlite_lake)
    with sqlite_lake.transaction() as txn:
        txn.drop_table("review")
    assert sqlite_lake.indexes() == []
    fill(sqlite_lake)
    assert keys(text_index(sqlite_lake).search("broken")) == [1]


def test_an_index_without_rows(sqlite_lake: tailrace.Lake) -> None:
    sqlite_lake.create_table("review", COLUMNS, primary_key="id")
    words, near = text_index(sqlite_lake), vector_index(sqlite_lake, dimension=2)
    assert words.search("late", highlight=True, columns=["note"]).num_rows == 0
    assert near.search([1, 0]).num_rows == 0
    assert sqlite_lake.search("review", text="late", vector=[1, 0]).num_rows == 0
    words.rebuild()
    near.rebuild()


def test_a_paused_index_whose_history_was_purged(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    from datetime import timedelta

    with sqlite_lake_args.connect(spark=spark) as lake:
        lake.configure(snapshot_retention=timedelta(0))
        table = fill(lake)
        text_index(lake)
        lake.jobs.pause("review", "words")
        table.append([{**ROWS[0], "id": 7}])
        lake.create_table("other", {"id": "int"}).append([{"id": 1}])
        lake.purge()
    with sqlite_lake_args.connect(spark=spark) as lake:
        words = lake.index("review", "words")
        with pytest.raises(tailrace.UnavailableError, match="was purged"):
            words.search("late")
        assert sorted(keys(words.search("late", freshness="latest"))) == [1, 7]
        lake.jobs.resume("review", "words")
        words.wait()
        assert sorted(keys(words.search("late"))) == [1, 7]
