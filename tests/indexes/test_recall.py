"""Recall of vectors that are not cleanly clustered: as built, grown threefold, with deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    import tailrace

DIMENSION = 128
QUERIES = 100


def make_vectors(random: np.random.Generator, count: int) -> Any:
    """Clouds that overlap, with a spectrum that falls off slowly, as embeddings have."""
    spectrum = np.arange(1, DIMENSION + 1) ** -0.5
    middles = np.random.default_rng(5).normal(size=(400, DIMENSION)) * spectrum
    noise = random.normal(size=(count, DIMENSION)) * spectrum
    return (0.6 * middles[random.integers(0, 400, count)] + noise).astype(np.float32)


def to_rows(first: int, vectors: Any) -> pa.Table:
    ids = np.arange(first, first + len(vectors))
    flat = pa.array(vectors.ravel())
    lists = pa.ListArray.from_arrays(np.arange(len(vectors) + 1) * DIMENSION, flat)
    return pa.table({"id": ids, "part": ids % 100, "v": lists})


def recall(
    index: tailrace.Index, vectors: Any, keep: Any, queries: Any, where: str | None = None
) -> float:
    """The share of the ten nearest that a search finds; the index has them by position."""
    unit, wanted = vectors[keep].copy(), queries.copy()
    faiss.normalize_L2(unit)
    faiss.normalize_L2(wanted)
    _, exact = faiss.knn(wanted, unit, 10, metric=faiss.METRIC_INNER_PRODUCT)
    ids = np.flatnonzero(keep)[exact]
    hits = 0
    for query, expected in zip(queries, ids, strict=True):
        found = index.search(query, 10, where=where)
        assert found.num_rows == 10
        hits += len(set(found.column("id").to_pylist()) & set(expected.tolist()))
    return hits / (10 * len(queries))


def run(lake: tailrace.Lake, start: int) -> None:
    random = np.random.default_rng(11)
    vectors, queries = make_vectors(random, 3 * start), make_vectors(random, QUERIES)
    table = lake.create_table(
        "doc", {"id": "bigint", "part": "bigint", "v": "array<float>"}, primary_key="id"
    )
    table.append(to_rows(0, vectors[:start]))
    index = lake.create_index("doc", "near", using="vector", columns="v")
    lake.run_until_fresh()
    keep = np.zeros(len(vectors), bool)
    keep[:start] = True
    found = {"built": recall(index, vectors, keep, queries)}
    for number in range(4):  # threefold, by iterations
        first = start + number * start // 2
        table.append(to_rows(first, vectors[first : first + start // 2]))
        keep[first : first + start // 2] = True
        lake.run_until_fresh()
    found["grown"] = recall(index, vectors, keep, queries)
    gone = random.permutation(len(vectors))[: len(vectors) * 3 // 10]
    table.delete(pa.table({"id": gone}))
    keep[gone] = False
    found["deleted, latest"] = recall_latest(index, vectors, keep, queries)
    lake.run_until_fresh()
    found["deleted"] = recall(index, vectors, keep, queries)
    one_percent = keep & (np.arange(len(vectors)) % 100 == 7)
    found["filtered"] = recall(index, vectors, one_percent, queries, where="part = 7")
    assert min(found.values()) >= 0.95, found


def recall_latest(index: tailrace.Index, vectors: Any, keep: Any, queries: Any) -> float:
    """As `recall`, before the deletes were indexed."""

    class Latest:
        def search(self, query: Any, limit: int, where: str | None) -> pa.Table:
            return index.search(query, limit, where=where, freshness="latest")

    return recall(Latest(), vectors, keep, queries)  # type: ignore[arg-type]


@pytest.mark.early
def test_recall_is_as_asked_for(sqlite_lake: tailrace.Lake) -> None:
    run(sqlite_lake, 100_000)
