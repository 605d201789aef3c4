"""How many lists there are, how even they are, and how many a search looks at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailrace.indexes.definition import Definition
from tailrace.indexes.vectors import training as lists
from tailrace.indexes.vectors.comparison import flat_index
from tailrace.indexes.vectors.kind import L2, VectorOptions

OPTIONS = VectorOptions(metric=L2, dimension=1)
# Ten lists, whose middles are 0, 10, …, 90.
QUANTIZER = flat_index(OPTIONS, np.arange(0, 100, 10, dtype=np.float32)[:, None])


def test_lists_grow_with_the_root_of_the_rows() -> None:
    assert [lists.list_count(rows) for rows in (1, 10_000, 1_000_000)] == [16, 200, 2000]


def test_a_sample_is_never_larger_than_the_rows() -> None:
    assert lists.sample_size(100, 8) == 100
    assert lists.sample_size(1_000_000, 8) == 128_000
    assert lists.sample_size(1_000_000, 65_536) == 1024  # or than memory


@pytest.mark.parametrize(
    ("sizes", "times"), [([5, 5, 5, 5], 1.0), ([20, 0, 0, 0], 4.0), ([0, 0], 0.0)]
)
def test_unevenness_is_how_much_longer_a_search_takes(sizes: list[int], times: float) -> None:
    assert lists.unevenness(np.array(sizes)) == times


def probes(neighbours: list[list[int]], recall: float) -> int:
    queries = np.array([[1.0]] * len(neighbours), np.float32)  # nearest to the lists 0, 1, 2, …
    return lists.probes_for(QUANTIZER, queries, np.array(neighbours), recall)


def test_as_many_lists_as_the_recall_needs() -> None:
    assert probes([[0, 0, 0]], 0.95) == 1
    assert probes([[0, 1, 3]], 1.0) == 4
    assert probes([[0] * 9 + [8]], 0.5) == 1
    assert probes([[0] * 9 + [8]], 0.99) == 9


def test_missing_neighbours_do_not_count() -> None:
    assert probes([[0, -1, -1]], 1.0) == 1
    assert probes([[-1, -1]], 1.0) == 1


def test_centroids_come_out_of_files_as_they_went_in(tmp_path: Path) -> None:
    saved = np.array([[1.0], [2.0]], np.float32)
    assert {file.name for file in lists.save(tmp_path, saved, 1.5)} == {lists.NAME, lists.SAMPLE}
    definition = Definition(using="vector", columns=(1,), options=OPTIONS)
    assert lists.load(definition, tmp_path).ntotal == 2
    assert lists.first_unevenness(tmp_path) == 1.5
