"""Vectors are compared exactly, or in lists that keep precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import sqlalchemy as sa

import tailrace
from tailrace.indexes import tables as t
from tests.indexes.model import keys, scores, scores_of
from tests.indexes.review import fill, vector_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


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
