"""What full-text searches find, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.indexes.model import keys, scores
from tests.indexes.review import fill, text_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


def test_columns_have_weights(sqlite_lake: tailrace.Lake) -> None:
    fill(sqlite_lake)
    words = text_index(sqlite_lake, columns=["note", "title"], weights={"title": 10})
    assert keys(words.search("late"))[0] == 2
    assert keys(words.search("note:late")) == [1]
    assert keys(words.search("TITLE:late")) == [2]


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


def test_parts_that_tantivy_merges_out_of_order(
    sqlite_lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.indexes.segment_files import default_directory
    from tailrace.indexes.text import files

    monkeypatch.setattr(files, "_HEAP", 8 * 15_000_000)  # an eighth of it: the least there is
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
