"""Centroids divide the vectors of an index into lists, of which a search looks at a few.

Always true: centroids never change, and all segments that the same ones divide can be searched as
if they were one. New ones are trained when the index has outgrown them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.indexes.vectors.comparison import Vectors, flat_index
from tailrace.indexes.vectors.kind import COSINE, VectorOptions
from tailrace.indexes.vectors.load_faiss import faiss

NAME, SAMPLE = "centroids.npy", "sample.json"
_PER_LIST = 64  # vectors of the sample for each list: faiss asks for 39
_COUNTED = 8_192  # of the sample, whose lists are counted
_SAMPLE_BYTES = 256 * 1024**2
_ROUNDS = 6  # faiss makes 10: of those, the last four were not seen to make better lists
# Queries to calibrate with: fewer with all rows, among which each has more neighbours.
QUERIES, SAMPLE_QUERIES = 100, 200
NEIGHBOURS = 10  # of each query
# Calibration uses vectors of the index itself; those of users are a little farther from it.
_MARGIN = 0.6


def list_count(rows: int) -> int:
    """How many lists so many vectors are divided into."""
    return max(16, int(2 * math.sqrt(rows)))


def sample_size(rows: int, dimension: int) -> int:
    """How many vectors the centroids are found from."""
    return min(rows, list_count(rows) * _PER_LIST, _SAMPLE_BYTES // (4 * dimension))


def train(options: VectorOptions, sample: Vectors, rows: int) -> Vectors:
    """Find the centroids for so many rows from a sample of them."""
    lists = min(list_count(rows), max(1, len(sample) // 39))
    kmeans = faiss.Kmeans(
        options.dimension,
        lists,
        niter=_ROUNDS,
        seed=1,
        spherical=options.metric == COSINE,
        max_points_per_centroid=_PER_LIST,
    )
    kmeans.train(sample)
    centroids: Vectors = kmeans.centroids
    return centroids


def save(directory: Path, centroids: Vectors, sample_unevenness: float) -> list[Path]:
    """Write them to files, with how uneven the lists of the sample are."""
    np.save(directory / NAME, centroids)
    (directory / SAMPLE).write_text(json.dumps({"unevenness": sample_unevenness}))
    return [directory / NAME, directory / SAMPLE]


def first_unevenness(directory: Path) -> float:
    """How uneven the lists of the sample were."""
    return float(json.loads((directory / SAMPLE).read_text())["unevenness"])


def unevenness_of(quantizer: Any, sample: Vectors) -> float:
    """How uneven the lists of some vectors are."""
    some = np.ascontiguousarray(sample[:: -(-len(sample) // _COUNTED)])
    _, lists = quantizer.search(some, 1)
    return unevenness(np.bincount(lists.ravel(), minlength=quantizer.ntotal))


def unevenness(sizes: npt.NDArray[Any]) -> float:
    """How many times longer a search takes than with lists that are all of one size."""
    counts = sizes.astype(np.float64)
    return float(counts.size * (counts**2).sum() / max(1.0, counts.sum() ** 2))


def as_index(options: VectorOptions, centroids: Vectors) -> Any:
    """As an index of their own, which finds the nearest."""
    index = flat_index(options)
    index.add(centroids)
    return index


def load(options: VectorOptions, directory: Path) -> Any:
    """Read them, as an index of their own."""
    return as_index(options, np.load(directory / NAME))


def probes_for(
    quantizer: Any, queries: Vectors, neighbours: npt.NDArray[np.int64], recall: float
) -> int:
    """The least number of lists for a recall.

    `neighbours` are, for each query, the lists that its nearest vectors are in, and -1 where there
    is none. A search looks at lists from the nearest on: a vector is found as soon as its list is
    among them. So the places that these lists have tell the recall of any number of them.
    """
    lists = quantizer.ntotal
    _, order = quantizer.search(queries, lists)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(lists, dtype=np.int64)[None, :], axis=1)
    there = neighbours >= 0
    needed = np.sort(np.take_along_axis(places, np.maximum(neighbours, 0), axis=1)[there])
    if not len(needed):
        return 1
    wanted = recall + (1 - recall) * _MARGIN
    return int(needed[min(len(needed), math.ceil(wanted * len(needed))) - 1]) + 1
