"""Builds the files of one vector segment: plain arrays, in the order of the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.indexes.definition import Definition
from tailrace.indexes.vectors.library import Vectors, all_of, one_thread, prepared, to_vectors

VECTORS, LISTS = "vectors.npy", "lists.npy"


class VectorWriter:
    """One segment under construction.

    Without centroids, vectors are stored as they are. With, what is stored is the list that each
    belongs to, and how it differs from the centroid: with half the precision, which is plenty for
    differences, unless they are too large for that.
    """

    def __init__(self, definition: Definition, centroids: Any | None) -> None:
        self._definition, self._centroids = definition, centroids
        self._middles: Any = None if centroids is None else all_of(centroids)
        self._vectors: list[Any] = []
        self._lists: list[Any] = []
        self.rows = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add rows, none of which is NULL."""
        vectors: Vectors = prepared(
            self._definition, to_vectors(column, self._definition.dimension)
        )
        self.rows += len(vectors)
        if self._centroids is None:
            self._vectors.append(vectors)
            return
        with one_thread():  # other tasks build other segments
            _, lists = self._centroids.search(vectors, 1)
        lists = lists.ravel()
        rest = vectors - self._middles[lists]
        with np.errstate(over="ignore"):
            half = rest.astype(np.float16)
        # One array that needs all its precision makes the whole segment keep it.
        self._vectors.append(half if np.isfinite(half).all() else rest)
        self._lists.append(lists.astype(np.int32))

    def finish(self, directory: Path) -> list[Path]:
        """Write the files."""
        np.save(directory / VECTORS, np.concatenate(self._vectors))
        if self._centroids is None:
            return [directory / VECTORS]
        np.save(directory / LISTS, np.concatenate(self._lists))
        return [directory / VECTORS, directory / LISTS]


def read_lists(directory: Path) -> npt.NDArray[np.int64]:
    """The list of each vector of a segment that is divided."""
    found: npt.NDArray[np.int64] = np.load(directory / LISTS).astype(np.int64)
    return found
