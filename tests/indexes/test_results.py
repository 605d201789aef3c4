"""Reciprocal rank fusion: what is near the top of several lists comes first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tailrace.indexes.reader import Hits
from tailrace.indexes.results import rank_fusion


def hits(*rows: tuple[int, int]) -> Hits:
    """Rows by file and position, the best first."""
    return Hits(
        scores=np.zeros(len(rows)),
        files=np.array([file for file, _ in rows], np.int64),
        positions=np.array([position for _, position in rows], np.int64),
        keys=pa.table({}),
    )


def fused(*lists: Hits, limit: int = 10) -> list[tuple[int, int]]:
    files, positions, _ = rank_fusion(lists, limit)
    return list(zip(files.tolist(), positions.tolist(), strict=True))


def test_a_row_of_both_lists_beats_the_first_of_either() -> None:
    assert fused(hits((1, 0), (1, 5)), hits((2, 0), (1, 5))) == [(1, 5), (1, 0), (2, 0)]


def test_equal_scores_come_in_the_order_of_the_table() -> None:
    assert fused(hits((2, 7)), hits((1, 9))) == [(1, 9), (2, 7)]


def test_scores_are_those_of_the_ranks() -> None:
    _, _, scores = rank_fusion([hits((1, 0), (1, 1)), hits((1, 1))], 10)
    assert scores.tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61])


def test_no_more_rows_than_the_limit() -> None:
    assert fused(hits((1, 0), (1, 1), (1, 2)), hits(), limit=2) == [(1, 0), (1, 1)]


def test_nothing_in_nothing_out() -> None:
    assert fused(hits(), hits()) == []
