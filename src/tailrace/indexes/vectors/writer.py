"""Builds the files of one vector segment: plain arrays, in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.indexes.vectors.comparison import Vectors, all_of, one_thread, prepared, to_vectors
from tailrace.indexes.vectors.kind import VectorOptions

# Segments hold plain arrays of numbers: no version of faiss reads them differently.
FORMAT = "vector-2"
VECTORS, LISTS = "vectors.npy", "lists.npy"
# What a vector may lose by half the precision, as a share of its difference from the centroid; a
# loss below the second, as a share of itself, is within the precision of its own numbers.
_LOSS, _NOISE = 1e-3, 1e-6
_SHORT = 1e-15  # the squares of shorter vectors are lost themselves


class VectorWriter:
    """One segment under construction.

    Without centroids, vectors are stored as they are. With, what is stored is the list that each
    belongs to, and how it differs from the centroid, with half the precision: which is plenty, but
    not for numbers that are very large, very small, or in the list of a much longer centroid. One
    of those makes the whole segment keep its vectors as they are.
    """

    def __init__(self, options: VectorOptions, directory: Path, centroids: Any | None) -> None:
        self._options, self._directory, self._centroids = options, directory, centroids
        self._middles: Any = None if centroids is None else all_of(centroids)
        self._vectors: list[Any] = []
        self._lists: list[Any] = []
        self.rows = 0

    def add(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Add rows, none of which is NULL."""
        (column,) = columns
        vectors: Vectors = prepared(self._options, to_vectors(column, self._options.dimension))
        self.rows += len(vectors)
        if self._centroids is None:
            self._vectors.append(vectors)
            return
        with one_thread():  # other tasks build other segments
            _, lists = self._centroids.search(vectors, 1)
        lists = lists.ravel()
        self._vectors.append(_halved(vectors, vectors - self._middles[lists]))
        self._lists.append(lists.astype(np.int32))

    def finish(self) -> list[Path]:
        """Write the files."""
        directory = self._directory
        if len({part.dtype for part in self._vectors}) > 1:
            self._vectors = [
                part if part.dtype == np.float32 else whole(part, self._middles[lists])
                for part, lists in zip(self._vectors, self._lists, strict=True)
            ]
        np.save(directory / VECTORS, np.concatenate(self._vectors))
        if self._centroids is None:
            return [directory / VECTORS]
        np.save(directory / LISTS, np.concatenate(self._lists))
        return [directory / VECTORS, directory / LISTS]


def whole(half: npt.NDArray[np.float16], middles: Vectors) -> Vectors:
    """Vectors out of how they differ from their centroids."""
    vectors: Vectors = half.astype(np.float32) + middles
    return vectors


def _halved(vectors: Vectors, rest: Vectors) -> npt.NDArray[Any]:
    """How vectors differ from their centroids, in half the precision if that loses nothing."""
    own = _lengths(vectors)
    usual = float(np.median(own))
    if usual < _SHORT:  # too short to say what is lost
        return vectors
    with np.errstate(over="ignore", invalid="ignore"):
        half = rest.astype(np.float16)
        lost = _lengths(half.astype(np.float32) - rest)
    # A vector of nothing, or next to it, is compared as others are.
    scale = np.maximum(own, usual)
    limit = np.maximum(_LOSS * np.minimum(scale, _lengths(rest)), _NOISE * scale)
    return half if (lost <= limit).all() else vectors


def _lengths(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


def read_lists(directory: Path) -> npt.NDArray[np.int64]:
    """The list of each vector of a segment that is divided."""
    lists: npt.NDArray[np.int64] = np.load(directory / LISTS).astype(np.int64)
    return lists
