"""Fuses lists of hits into one, by the ranks that rows have in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tailrace.indexes.reader import Hits

# How slowly a rank counts less further down; the constant of the paper that proposed it.
_CONSTANT = 60

Numbers = npt.NDArray[np.int64]


def rank_fusion(
    lists: Sequence[Hits], limit: int
) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
    """Files, positions and scores of the best rows, by reciprocal rank fusion.

    Scores of text and of vectors cannot be compared; ranks can. Rows with equal scores come in the
    order of their addresses, so that a repeated search gives the same result.
    """
    scores: dict[tuple[int, int], float] = {}
    for hits in lists:
        addresses = zip(hits.files.tolist(), hits.positions.tolist(), strict=True)
        for rank, address in enumerate(addresses, 1):
            scores[address] = scores.get(address, 0.0) + 1 / (_CONSTANT + rank)
    best = sorted(scores, key=lambda address: (-scores[address], address))[:limit]
    files = np.array([file for file, _ in best], np.int64)
    positions = np.array([position for _, position in best], np.int64)
    return files, positions, np.array([scores[address] for address in best])
