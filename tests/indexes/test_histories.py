"""Random changes of a table with both kinds of index: a search finds what brute force finds."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.indexes.model import (
    WORDS,
    Model,
    having,
    keys,
    nearest,
    scores,
    scores_of,
    single_index,
    single_scores,
)
from tests.support import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

# Few segments of few rows are merged, so that a short history has many merges.
SETTINGS = tailrace.Settings(merge_segments=3)
QUERY = [0.3, -0.2, 0.9, 0.0, 0.4, -1.0]


def check(model: Model, snapshot: int, metric: str, **how: object) -> None:
    """Both indexes, as of a snapshot."""
    rows, lake = model.at[snapshot], model.lake
    words, near = lake.index("doc", "words"), lake.index("doc", "near")
    for word in WORDS[:3]:
        found = words.search(word, 1000, **how)  # type: ignore[arg-type]
        assert sorted(keys(found)) == sorted(having(rows, word)), (snapshot, word, how)
        assert scores(found) == sorted(scores(found), reverse=True)
        both = words.search(f"+{word} +box", 1000, **how)  # type: ignore[arg-type]
        assert sorted(keys(both)) == sorted(having(rows, word, "box"))
    found = near.search(QUERY, 5, **how)  # type: ignore[arg-type]
    assert len(set(keys(found))) == found.num_rows
    expected = nearest(rows, QUERY, 5, metric)
    assert scores(found) == pytest.approx(expected, abs=1e-4), (snapshot, how)
    said = scores_of([rows[key]["v"] for key in keys(found)], QUERY, metric) if expected else []
    assert said == pytest.approx(expected, abs=1e-4)  # they are the rows that it says
    everything = near.search(QUERY, 1000, **how)  # type: ignore[arg-type]
    assert sorted(keys(everything)) == sorted(k for k, r in rows.items() if r["v"] is not None)


def run_history(lake: tailrace.Lake, seed: int, metric: str, steps: int, path: Path) -> None:
    random = Random(seed)
    model = Model(lake, random)
    model.make(metric)
    lake.run_until_fresh()
    model.note()
    indexed = [lake.snapshot]
    for _ in range(steps):
        model.step()
        check(model, lake.snapshot, metric, freshness="latest")
        if random.random() < 0.5:
            lake.run_until_fresh()
            model.note()  # files may have been compacted
            indexed.append(lake.snapshot)
        now = lake.index("doc", "words").search("late")
        # A compaction after it, which changed nothing, may count or not.
        assert model.at[tailrace.as_of(now)] == model.at[indexed[-1]]
        check(model, indexed[-1], metric)
    for snapshot in sorted(model.at)[1:]:  # as of any snapshot, also between two watermarks
        check(model, snapshot, metric, at=snapshot)
    lake.run_until_fresh()
    model.note()
    check(model, lake.snapshot, metric)
    check_scores(model, path)
    counted.count("histories of a table with indexes")


def check_scores(model: Model, path: Path) -> None:
    """After all was built anew, scores are those of one tantivy index over the same rows."""
    words = model.lake.index("doc", "words")
    words.rebuild()
    assert words.status().segments <= 1
    path.mkdir()
    alone = single_index([r["note"] for r in model.rows.values() if r["note"]], str(path))
    for query in ("late", "late delivery", "+gift -box", '"red blue"', "late OR (box AND gift)"):
        mine = scores(words.search(query, 1000))
        assert mine == pytest.approx(single_scores(alone, query, 1000), rel=1e-5), query


@pytest.mark.parametrize(("seed", "metric"), [(1, "l2"), (2, "cosine"), (3, "inner_product")])
def test_searches_equal_brute_force_at_every_snapshot(
    sqlite_lake_args: LakeArgs, spark: SparkSession, tmp_path: Path, seed: int, metric: str
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=SETTINGS) as lake:
        run_history(lake, seed, metric, 12, tmp_path / "alone")


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, 20))
def test_long_histories(
    lake_args: LakeArgs, spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    metric = ("l2", "cosine", "inner_product")[seed % 3]
    with lake_args.connect(spark=spark, settings=SETTINGS) as lake:
        run_history(lake, seed, metric, 60, tmp_path / "alone")
