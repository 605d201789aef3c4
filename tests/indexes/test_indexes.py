"""Making, searching, watching and dropping indexes; and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.indexes import tables as t
from tests.indexes.model import keys, scores, scores_of
from tests.support.lakes import configure
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs
    from tests.support.s3 import S3Bucket

COLUMNS = {"id": "bigint", "note": "string", "title": "string", "v": "array<float>"}
ROWS = [
    {"id": 1, "note": "A late delivery, and broken", "title": "Angry", "v": [1.0, 0.0]},
    {"id": 2, "note": "Deliveries early", "title": "late", "v": [0.0, 1.0]},
    {"id": 3, "note": "nothing to say", "title": None, "v": [0.9, 0.1]},
    {"id": 4, "note": None, "title": None, "v": None},
]


def fill(lake: tailrace.Lake) -> tailrace.Table:
    table = lake.create_table("review", COLUMNS, primary_key="id")
    table.append(ROWS)
    return table


def text_index(lake: tailrace.Lake, **options: Any) -> tailrace.Index:
    columns = options.pop("columns", ["note"])
    index = lake.create_index("review", "words", using="fulltext", columns=columns, options=options)
    index.wait()
    return index


def vector_index(lake: tailrace.Lake, **options: Any) -> tailrace.Index:
    index = lake.create_index("review", "near", using="vector", columns=["v"], options=options)
    index.wait()
    return index


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


def test_columns_have_weights(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    words = text_index(sqlite_lake, columns=["note", "title"], weights={"title": 10})
    assert keys(words.search("late"))[0] == 2
    assert keys(words.search("note:late")) == [1]
    assert keys(words.search("TITLE:late")) == [2]


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


def test_ten_segments_score_as_one(sqlite_lake_args: LakeArgs, spark: SparkSession) -> None:
    settings = tailrace.Settings(merge_segments=100)
    texts = [f"word{n % 7} word{n % 11} common {'long ' * (n % 5)}" for n in range(200)]
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        made = {}
        for name, parts in (("ten", 10), ("one", 1)):
            table = lake.create_table(name, {"id": "int", "text": "string"}, primary_key="id")
            made[name] = lake.create_index(name, "words", using="fulltext", columns="text")
            made[name].wait()
            for part in range(parts):
                own = range(part, len(texts), parts)
                table.append([{"id": n, "text": texts[n]} for n in own])
                made[name].wait()
        assert made["ten"].status().segments == 10
        assert made["one"].status().segments == 1
        for query in ("word3", "word3 word5 long", '"common long"', "+common -word1", "wor*"):
            one, ten = (made[name].search(query, 200) for name in ("one", "ten"))
            assert scores(one) == scores(ten), query
            assert set(keys(one)) == set(keys(ten))


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


def test_what_is_not_built_yet_says_so(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    index = sqlite_lake.create_index("review", "words", using="fulltext", columns=["note"])
    with pytest.raises(tailrace.UnavailableError, match=r"not built yet: 4 rows to index"):
        index.search("late")
    assert index.status().watermark is None
    assert index.status().pending_rows == 4
    index.wait()
    assert index.status().pending_rows == 0


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
    ("query", "message"),
    [
        ("?!", "no word to search for"),
        ("author:late", "no column 'author'; it has note"),
        (5, "searched for text, not for 5"),
    ],
)
def test_bad_queries_say_what_is_wrong(
    read_only_review: tailrace.Lake, query: object, message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        read_only_review.index("review", "words").search(query)


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


@pytest.fixture(scope="module")
def read_only_review(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Any:
    with tailrace.connect(tmp_path_factory.mktemp("review"), spark=spark) as lake:
        fill(lake)
        text_index(lake)
        vector_index(lake)
        yield lake


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


def test_a_vector_index_keeps_wrong_vectors_out(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    vector_index(sqlite_lake)
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* has 3 elements"):
        table.append([{**ROWS[0], "id": 8}, {**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* not finite"):
        table.append([{**ROWS[0], "id": 9, "v": [1.0, float("inf")]}])
    shape = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    frame = sqlite_lake.spark.createDataFrame([(9, "x", "y", [1.0])], shape)
    with pytest.raises(tailrace.InvalidError, match=r"'id': 9.* has 1 elements"):
        table.append(frame)
    table.append([{**ROWS[3], "id": 10}])  # NULL is fine
    sqlite_lake.drop_index("review", "near")
    table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])


def test_rows_that_do_not_fit_are_named(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    for options in ({"dimension": 3}, {}):
        if not options:
            sqlite_lake.table("review").append([{**ROWS[0], "id": 0, "v": [float("nan"), 1.0]}])
        with pytest.raises(tailrace.InvalidError, match=r"not so in \{'id': "):
            vector_index(sqlite_lake, **options)
    assert sqlite_lake.indexes() == []


def test_two_indexes_of_one_column_share_its_constraint(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    vector_index(sqlite_lake)
    sqlite_lake.create_index("review", "far", using="vector", columns="v", options={"metric": "l2"})
    sqlite_lake.drop_index("review", "near")
    with pytest.raises(tailrace.InvalidError, match="2 finite numbers"):
        table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    sqlite_lake.drop_index("review", "far")
    table.append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])


def test_a_write_beside_the_creation_cannot_break_the_constraint(
    sqlite_lake: tailrace.Lake,
) -> None:
    table = fill(sqlite_lake)
    txn = sqlite_lake.transaction()
    txn.table("review").append([{**ROWS[0], "id": 9, "v": [1, 2, 3]}])
    vector_index(sqlite_lake)
    with pytest.raises(tailrace.ConflictError):
        txn.commit()
    assert table.to_arrow().num_rows == 4


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


def test_chinese_japanese_and_korean(sqlite_lake: tailrace.Lake) -> None:
    texts = [
        "我爱数据库和搜索",
        "今天天气很好",
        "データベースを検索する",
        "데이터베이스 검색",
        "plain Latin",
    ]
    table = sqlite_lake.create_table("doc", {"id": "int", "text": "string"}, primary_key="id")
    table.append([{"id": n, "text": text} for n, text in enumerate(texts)])
    index = sqlite_lake.create_index(
        "doc", "words", using="fulltext", columns="text", options={"tokenizer": "ngram"}
    )
    index.wait()
    for query, expected in [
        ("数据库", [0]),
        ("搜", [0]),
        ("天气", [1]),
        ("データベース", [2]),
        ("検索", [2]),
        ("검색", [3]),
        ("latin", [4]),
        ("库数", []),
        ("数据*", [0]),
        ("据数*", []),
    ]:
        assert keys(index.search(query)) == expected, query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("delivery", {1, 2}),
        ("DELIVERIES", {1, 2}),
        ('"late delivery"', {1}),
        ('"late broken"', set()),
        ('"late broken"~2', {1}),
        ("deliv*", {1, 2}),
        ("noth* OR brok*", {1, 3}),
        ("brokn~1", {1}),
        ("noting~", {3}),
        ("+delivery -early", {1}),
        ("delivery NOT early", {1}),
        ("(late OR early) AND delivery", {1, 2}),
        ("late AND early", set()),
        ("a to", {1, 3}),
        ("late-delivery", {1}),
        ("late-deliv*", {1}),
        ("delivery-lat*", set()),
        ("late AND \N{GRINNING FACE}", set()),  # no text has it as a word
        ("\u0939\u093f*", set()),
    ],
)
def test_what_queries_find(read_only_review: tailrace.Lake, query: str, expected: set[int]) -> None:
    assert set(keys(read_only_review.index("review", "words").search(query))) == expected


def test_without_positions_there_are_no_phrases(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    words = text_index(sqlite_lake, positions=False, tokenizer="simple")
    assert keys(words.search("late-delivery")) == [1]
    assert keys(words.search("deliver")) == []
    with pytest.raises(tailrace.InvalidError, match="without positions"):
        words.search('"late delivery"')


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


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        # More of the same: new lists when there are more than four times as many.
        (lambda n: [n * 0.618034 % 1, n * 0.754878 % 1], [1500, 7000]),
        # Uneven from the start, as half of the vectors are the same: no others would be better.
        (lambda n: [0.5, 0.5] if n % 2 else [n * 0.618034 % 1, n * 0.754878 % 1], [1500, 7000]),
        # What comes is beyond what was there, and so all in a few lists.
        (lambda n: [n / 100, (n % 10) / 100], [1500, 4000, 7000]),
    ],
    ids=["evenly", "unevenly", "beyond"],
)
def test_vectors_are_divided_when_there_are_many(
    sqlite_lake_args: LakeArgs,
    spark: SparkSession,
    place: Callable[[int], list[float]],
    expected: list[int],
) -> None:
    settings = tailrace.Settings(exact_rows=1000)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = lake.create_table("doc", {"id": "int", "v": "array<float>"}, primary_key="id")
        near = lake.create_index(
            "doc", "near", using="vector", columns="v", options={"dimension": 2, "metric": "l2"}
        )

        def add(first: int, last: int) -> list[int]:
            table.append([{"id": n, "v": place(n)} for n in range(first, last)])
            lake.run_until_fresh()
            assert keys(near.search(place(last - 10), 1)) == [last - 10]
            with lake._runtime.database.read() as connection:
                query = sa.select(t.centroids.c.trained_rows).order_by(t.centroids.c.centroids_id)
                return list(connection.execute(query).scalars())

        assert add(0, 500) == []
        assert add(500, 1500) == [1500]
        assert add(1500, 4000) == [rows for rows in expected if rows <= 4000]
        assert add(4000, 7000) == expected
        assert near.search(place(0), 7000).num_rows == 7000


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


def test_vectors_that_are_mostly_missing_are_compared_all(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    settings = tailrace.Settings(exact_rows=100)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        table = lake.create_table("doc", {"id": "int", "v": "array<float>"}, primary_key="id")
        table.append([{"id": n, "v": None} for n in range(300)])
        near = lake.create_index(
            "doc", "near", using="vector", columns="v", options={"dimension": 2}
        )
        near.wait()
        assert near.search([1, 0]).num_rows == 0
        table.upsert([{"id": n, "v": [1.0, n]} for n in range(50)])
        near.wait()
        assert keys(near.search([1.0, 0.0], 2)) == [0, 1]


def test_numbers_of_any_size_are_compared(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("doc", {"id": "int", "v": "array<double>"}, primary_key="id")
    table.append([{"id": 1, "v": [1e14, 0.0]}, {"id": 2, "v": [1e-30, 1e-32]}])
    table.append([{"id": 3, "v": [0.0, 1.0]}, {"id": 4, "v": [0.0, 0.0]}])
    index = sqlite_lake.create_index("doc", "near", using="vector", columns="v")
    index.wait()
    found = index.search([1.0, 0.0], 4)
    assert dict(zip(keys(found), scores(found), strict=True)) == pytest.approx(
        {1: 1.0, 2: 1.0, 3: 0.0, 4: 0.0}, abs=1e-4
    )
    with pytest.raises(tailrace.InvalidError, match=r"'id': 5.* beyond 1e\+15"):
        table.append([{"id": 5, "v": [1e300, 1.0]}])


@pytest.mark.parametrize(
    ("metric", "size", "longer"),
    [("inner_product", 1, 1e4), ("inner_product", 1, 1e9), ("l2", 1e-8, 1), ("l2", 1, 1e4)],
)
def test_lists_keep_the_precision_that_vectors_need(
    sqlite_lake_args: LakeArgs, spark: SparkSession, metric: str, size: float, longer: float
) -> None:
    random = np.random.default_rng(1)
    vectors = (random.normal(size=(1020, 16)) * size).astype(np.float32)
    vectors[1000:] *= longer  # some are far out, and draw others into their lists
    query = (random.normal(size=16) * size).astype(np.float32)
    with sqlite_lake_args.connect(spark=spark, settings=tailrace.Settings(exact_rows=300)) as lake:
        table = lake.create_table("doc", {"id": "int", "v": "array<float>"}, primary_key="id")
        table.append([{"id": n, "v": v.tolist()} for n, v in enumerate(vectors)])
        index = lake.create_index(
            "doc", "near", using="vector", columns="v", options={"metric": metric}
        )
        lake.run_until_fresh()
        found = index.search(query, 10, where="id < 1000")
        expected = scores_of(vectors[:1000], query.tolist(), metric)
        best = np.argsort(expected)[::-1][:10]
        assert set(keys(found)) == set(best.tolist())
        assert scores(found) == pytest.approx([expected[n] for n in best], rel=2e-3)


def test_a_vector_column_that_was_dropped_is_not_searched(sqlite_lake: tailrace.Lake) -> None:
    table = fill(sqlite_lake)
    near = vector_index(sqlite_lake)
    before = sqlite_lake.snapshot
    table.drop_column(near.status().columns[0])
    for how in ({}, {"freshness": "latest"}):
        with pytest.raises(tailrace.InvalidError, match="no longer has a column of this index"):
            near.search([1.0, 0.0], **how)  # type: ignore[arg-type]
    assert near.search([1.0, 0.0], at=before).num_rows > 0


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


def test_parts_that_tantivy_merges_out_of_order(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.indexes.cache import default_directory
    from tailrace.indexes.text import writer

    monkeypatch.setattr(writer, "_HEAP", 8 * 15_000_000)  # an eighth of it: the least there is
    table = sqlite_lake.create_table("doc", {"id": "int", "text": "string"}, primary_key="id")
    table.append(
        [
            {"id": n, "text": f"id{n} " + " ".join(f"w{(n * k) % 9973}" for k in range(1500))}
            for n in range(8000)
        ]
    )
    words = sqlite_lake.create_index("doc", "words", using="fulltext", columns="text")
    words.wait()
    from tailrace.indexes.index_snapshot import index_at

    snapshot = index_at(
        sqlite_lake.runtime, words.job_id, table.info.id, words.definition, sqlite_lake.snapshot
    )
    (segment,) = snapshot.parts.segments
    place = default_directory() / "segments" / segment.checksum
    words.search("id1")
    assert list(place.glob("*.order.npy"))  # it has come to that
    table.delete("id % 7 = 3")
    for number in range(0, 8000, 97):
        expected = [] if number % 7 == 3 else [number]
        assert keys(words.search(f"id{number}", freshness="latest")) == expected


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
