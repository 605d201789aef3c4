"""Several lists of rows put together to one, by the places that rows have in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tailrace.indexes.reader import Hits

# How much less a place further down counts; the constant of the paper that proposed it.
_CONSTANT = 60

Numbers = npt.NDArray[np.int64]


def rank_fusion(
    lists: Sequence[Hits], limit: int
) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
    """Files, positions and scores of the best rows, by reciprocal rank fusion.

    Scores of text and of vectors cannot be compared; places can. Rows with the same score come in
    the order of their places in the table, so that a search repeated is the same.
    """
    scores: dict[tuple[int, int], float] = {}
    for hits in lists:
        places = zip(hits.files.tolist(), hits.positions.tolist(), strict=True)
        for rank, place in enumerate(places, 1):
            scores[place] = scores.get(place, 0.0) + 1 / (_CONSTANT + rank)
    best = sorted(scores, key=lambda place: (-scores[place], place))[:limit]
    files = np.array([file for file, _ in best], np.int64)
    positions = np.array([position for _, position in best], np.int64)
    return files, positions, np.array([scores[place] for place in best])
