"""Searching: what is returned, conditions, freshness, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.indexes.model import keys, scores
from tests.indexes.review import ROWS, fill, text_index, vector_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


def test_a_search_returns_keys_scores_and_columns(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    words = text_index(sqlite_lake, columns=["note", "title"])
    found = words.search("late", columns=["title", "id"], highlight=True)
    assert found.column_names == ["id", "score", "title", "highlight"]
    shown = {row["id"]: row["highlight"] for row in found.to_pylist()}
    assert shown == {1: "A <b>late</b> delivery, and broken", 2: "<b>late</b>"}
    assert tailrace.as_of(found) == sqlite_lake.snapshot
    assert not tailrace.is_stale(found)
    near = vector_index(sqlite_lake, metric="l2")
    assert scores(near.search([1, 0], 3)) == pytest.approx([0, -(0.02**0.5), -(2**0.5)], abs=1e-6)


def test_columns_that_are_called_as_ours_keep_their_names(sqlite_lake: tailrace.Lake) -> None:
    columns = {"id": "int", "text": "string", "score": "int", "_score": "int", "highlight": "int"}
    table = sqlite_lake.create_table("odd", columns, primary_key="id")
    table.append([{"id": 1, "text": "late", "score": 5, "_score": 6, "highlight": 7}])
    words = sqlite_lake.create_index("odd", "words", using="fulltext", columns="text")
    words.wait()
    (row,) = words.search("late", columns=list(columns), highlight=True).to_pylist()
    assert (row["score"], row["_score"], row["highlight"]) == (5, 6, 7)
    assert row["__score"] > 0
    assert row["_highlight"] == "<b>late</b>"
    with pytest.raises(tailrace.InvalidError, match="no dots"):
        sqlite_lake.create_index("odd", "we.ird", using="fulltext", columns="text")


def test_a_table_without_a_key_can_be_searched(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("log", {"line": "string", "n": "int", "v": "array<float>"})
    table.append([{"line": f"line number {n}", "n": n, "v": [n, 1.0]} for n in range(20)])
    table.append([{"line": "the same twice", "n": 1, "v": None}] * 2)
    words = sqlite_lake.create_index("log", "words", using="fulltext", columns="line")
    near = sqlite_lake.create_index("log", "near", using="vector", columns="v")
    words.wait()
    near.wait()
    assert words.search("number", 100).num_rows == 20
    found = words.search("twice")
    assert found.column_names == ["score", "line", "n", "v"]
    assert found.num_rows == 2
    table.delete("n = 7")
    assert words.search("number", 100, freshness="latest").num_rows == 19
    assert near.search([7, 1.0], 100, freshness="latest").num_rows == 19
    assert words.search("number", 100).num_rows == 20


def test_a_row_that_is_deleted_and_inserted_again_is_found_once(
    sqlite_lake: tailrace.Lake,
) -> None:
    table = fill(sqlite_lake)
    words = text_index(sqlite_lake)
    for _ in range(3):
        table.delete([{"id": 1}])
        table.append([ROWS[0]])
        assert keys(words.search("broken", freshness="latest")) == [1]
        words.wait()
        assert keys(words.search("broken")) == [1]
    table.upsert([ROWS[0]])  # the same image: other files, the same row to its users
    words.wait()
    assert keys(words.search("broken")) == [1]


def test_there_are_as_many_rows_as_asked_for(sqlite_lake: tailrace.Lake) -> None:
    columns = {"id": "int", "kind": "int", "text": "string", "v": "array<float>"}
    table = sqlite_lake.create_table("doc", columns, primary_key="id")
    table.append(
        [{"id": n, "kind": n % 10, "text": "same words", "v": [n, 1.0]} for n in range(1000)]
    )
    words = sqlite_lake.create_index("doc", "words", using="fulltext", columns="text")
    near = sqlite_lake.create_index("doc", "near", using="vector", columns="v")
    sqlite_lake.run_until_fresh()
    table.delete("id < 900")
    for index, query in ((words, "same"), (near, [1.0, 1.0])):
        for how in ({"freshness": "latest"}, {"at": sqlite_lake.snapshot}):
            assert index.search(query, 100, **how).num_rows == 100  # type: ignore[arg-type]
            found = index.search(query, 10, where="kind = 3", **how)  # type: ignore[arg-type]
            assert sorted(keys(found)) == list(range(903, 1000, 10))
            few = index.search(query, 10, where="kind = 3 and id > 980", **how)  # type: ignore[arg-type]
            assert sorted(keys(few)) == [983, 993]
        assert index.search(query, 100).num_rows == 100  # as it was before the deletes
        assert min(keys(index.search(query, 1000))) == 0


def test_a_tail_that_is_too_long_is_an_error_or_marked(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = tailrace.Settings(tail_rows=3)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = fill(lake)
        words = text_index(lake)
        before = lake.snapshot
        table.append([{**ROWS[0], "id": n} for n in range(10, 14)])
        with pytest.raises(tailrace.UnavailableError, match=r"does not have 4 rows yet.*up to 3"):
            words.search("late", freshness="latest")
        found = words.search("late", freshness="latest", stale_ok=True)
        assert keys(found) == [1]
        assert tailrace.is_stale(found)
        assert tailrace.as_of(found) == before
        assert keys(words.search("late")) == [1]
        words.wait()
        assert words.search("late", freshness="latest").num_rows == 5


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (lambda index: index.search([1.0]), "has 1 elements; the index has the dimension 2"),
        (lambda index: index.search("late"), "searched for 2 numbers"),
        (lambda index: index.search([float("nan"), 1]), "not finite"),
        (lambda index: index.search([1, 0], 0), "a limit is a whole number"),
        (lambda index: index.search([1, 0], freshness="now"), '"indexed" or "latest"'),
        (lambda index: index.search([1, 0], where="nothing > 1"), "nothing"),
        (lambda index: index.search([1, 0], where=""), "a condition in Spark SQL"),
        (lambda index: index.search([1, 0], where=["id"]), "takes text or None"),
        (lambda index: index.search([1, 0], where="id in (select 1)"), "without subqueries"),
        (lambda index: index.search([1, 0], where="id in (select desc"), "without subqueries"),
        (lambda index: index.search([1, 0], where="x -> x"), "cannot use"),
        (lambda index: index.search([1, 0], columns=3), "takes a list"),
        (lambda index: index.search([1, 0], highlight=True), "full-text index"),
    ],
)
def test_bad_searches_say_what_is_wrong(
    read_only_review: tailrace.Lake, search: Callable[[tailrace.Index], Any], message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        search(read_only_review.index("review", "near"))
    with pytest.raises(tailrace.NotFoundError, match="no column"):
        read_only_review.index("review", "near").search([1, 0], columns=["nothing"])
    with pytest.raises(tailrace.NotFoundError, match="no snapshot 999"):
        read_only_review.index("review", "near").search([1, 0], at=999)


def test_renamed_columns_are_still_searched(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    words = text_index(sqlite_lake)
    table.rename_column("note", "remark")
    table.rename_column("id", "number")
    table.append([{**{k: ROWS[0][k] for k in ("title", "v")}, "number": 7, "remark": "late too"}])
    words.wait()
    found = words.search("remark:late", columns=["remark"])
    assert found.column("number").to_pylist() == [7, 1]
    table.drop_column("remark")
    table.append([{"title": "x", "v": None, "number": 8}])
    with pytest.raises(tailrace.JobFailedError, match="no longer has a column"):
        words.wait()


def test_hybrid_search_puts_both_lists_together(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    text_index(sqlite_lake)
    vector_index(sqlite_lake)
    found = sqlite_lake.search("review", text="late broken", vector=[1, 0], columns=["title"])
    assert found.column_names == ["id", "score", "title"]
    assert keys(found)[0] == 1
    assert scores(found)[0] == pytest.approx(2 / 61)
    table.delete([{"id": 1}])
    latest = sqlite_lake.search("review", text="late early", vector=[0, 1], freshness="latest")
    assert keys(latest)[0] == 2
    assert 1 not in keys(latest)
    assert keys(sqlite_lake.search("review", text="early", limit=1)) == [2]
    with pytest.raises(tailrace.InvalidError, match="text=, vector="):
        sqlite_lake.search("review")


def test_many_queries_at_once(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    words, near = text_index(sqlite_lake), vector_index(sqlite_lake)
    spark = sqlite_lake.spark
    queries = spark.createDataFrame([("a", "late"), ("b", "delivery"), ("c", None)], ["q", "text"])
    found = words.search_many(queries, "text", 5).collect()
    assert sorted((row["q"], row["rank"], row["id"]) for row in found) == [
        ("a", 1, 1),
        ("b", 1, 2),
        ("b", 2, 1),
    ]
    table.append([{**ROWS[0], "id": 9}])
    latest = words.search_many(queries, "text", 5, freshness="latest").collect()
    assert sorted(row["id"] for row in latest if row["q"] == "a") == [1, 9]
    vectors = spark.createDataFrame([(1, [1.0, 0.0])], "q int, v array<float>")
    assert [row["id"] for row in near.search_many(vectors, "v", 2).collect()] == [1, 3]
    with pytest.raises(tailrace.InvalidError, match="no column 'nothing'"):
        words.search_many(queries, "nothing")
    with pytest.raises(tailrace.InvalidError, match="'q' is int: the index is searched for arrays"):
        near.search_many(vectors, "q")


def test_columns_change_without_rows(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    words = text_index(sqlite_lake)
    assert keys(words.search("note:late")) == [1]
    table.rename_column("note", "remark")
    table.rename_column("id", "number")
    table.add_column("more", "int")
    table.drop_column("title")
    for how in ({}, {"freshness": "latest"}, {"at": sqlite_lake.snapshot}):
        found = words.search("remark:late", columns=["remark", "more"], **how)  # type: ignore[arg-type]
        assert found.column_names == ["number", "score", "remark", "more"]
        with pytest.raises(tailrace.NotFoundError, match="no column 'title'"):
            words.search("late", columns=["title"], **how)  # type: ignore[arg-type]


def test_a_cache_that_is_too_small_is_only_slow(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = tailrace.Settings(cache_bytes=1)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = fill(lake)
        words = text_index(lake)
        table.append([{**ROWS[0], "id": 7}])
        words.wait()
        assert words.status().segments == 2
        assert sorted(keys(words.search("late"))) == [1, 7]
        table.append([{**ROWS[0], "id": 8}])
        assert sorted(keys(words.search("late", freshness="latest", where="id > 1"))) == [7, 8]


def test_conditions_that_only_spark_can_read(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table(
        "doc", {"id": "int", "desc": "string", "note": "string"}, primary_key="id"
    )
    table.append([{"id": n, "desc": "xy"[n % 2], "note": "late"} for n in range(4)])
    index = sqlite_lake.create_index("doc", "words", using="fulltext", columns="note")
    index.wait()
    assert sorted(keys(index.search("late", where="desc = 'x'"))) == [0, 2]
    deep = "(" * 30 + "id > 1" + ")" * 30
    assert sorted(keys(index.search("late", where=deep))) == [2, 3]
