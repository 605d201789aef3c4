"""A published collection: news that people have compared with each other (Lee, Pincombe and Welsh,
2005). Searched in segments beside one index of tantivy's own: the same rows in the same order, and
so the same relevance.
"""

from __future__ import annotations

import math
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.indexes.model import single_index

if TYPE_CHECKING:
    import tantivy

    from tests.support.lakes import LakeArgs

BEST = 10


def read(name: str) -> str:
    # Gensim has it among its tests' files; nothing of it is imported.
    place = distribution("gensim").locate_file(f"gensim/test/test_data/{name}")
    return Path(str(place)).read_text(encoding="latin-1")


@pytest.fixture(scope="module")
def judged() -> list[str]:
    """Fifty texts, each of which was compared with every other one."""
    return read("lee.cor").splitlines()


@pytest.fixture(scope="module")
def ratings() -> Any:
    """How alike people found them, from 0 to 1."""
    upper = np.loadtxt(read("similarities0-1.txt").splitlines())
    return np.maximum(upper, upper.T)


def theirs(alone: tantivy.Index, query: str, texts: list[str]) -> list[tuple[float, int]]:
    """All rows that tantivy finds, the best first."""
    searcher = alone.searcher()
    hits = searcher.search(alone.parse_query(query, ["body"]), len(texts)).hits
    return [(score, address.doc) for score, address in hits]


def gain(order: list[int], ratings: Any) -> float:
    """Normalized discounted cumulative gain of the best ten."""
    weights = [1 / math.log2(place + 2) for place in range(BEST)]
    best = sorted(ratings, reverse=True)
    found = sum(weight * ratings[row] for weight, row in zip(weights, order, strict=False))
    return float(found / sum(w * r for w, r in zip(weights, best, strict=False)))


def test_segments_are_as_relevant_as_one_index(
    sqlite_lake_args: LakeArgs, judged: list[str], ratings: Any, tmp_path: Path
) -> None:
    texts = [*judged, *read("lee_background.cor").splitlines()]
    alone = single_index(texts, str(tmp_path))
    assert alone.searcher().num_segments == 1  # its documents are numbered as the texts are
    with sqlite_lake_args.connect() as lake:
        table = lake.create_table("news", {"id": "int", "body": "string"}, primary_key="id")
        index = lake.create_index("news", "words", using="fulltext", columns=["body"])
        for start in range(0, len(texts), 50):
            part = texts[start : start + 50]
            table.append([{"id": start + n, "body": text} for n, text in enumerate(part)])
            lake.run_until_fresh()
        assert index.status().segments == 7
        gains: list[tuple[float, float]] = []
        for number, text in enumerate(judged):
            # Each word once: tantivy's own parser leaves repeated ones out.
            query = " ".join(dict.fromkeys(re.findall(r"[a-z]+", text.lower())))
            found = index.search(query, len(texts))
            mine = list(zip(*(found[name].to_pylist() for name in ("score", "id")), strict=True))
            expected = theirs(alone, query, texts)
            assert [s for s, _ in mine] == pytest.approx([s for s, _ in expected], rel=1e-5)
            # In another order only where scores are the same.
            known = {row: score for score, row in expected}
            assert all(known[row] == pytest.approx(score, rel=1e-5) for score, row in mine)
            others = np.delete(ratings[number], number)
            orders = [
                [row - (row > number) for _, row in one if row < len(judged) and row != number]
                for one in (mine, expected)
            ]
            gains.append((gain(orders[0], others), gain(orders[1], others)))
        ours, library = np.mean(gains, axis=0)
        assert ours == pytest.approx(library, abs=1e-3)
        assert ours > 0.75  # of rows in any order it is 0.57
