"""How vectors are compared: faiss, the metrics, and the form that each needs vectors in.

Import faiss from here, and nowhere else: it is loaded with the code that suits the processor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.indexes.vectors.kind import COSINE, L2, VectorOptions

# Faiss comes with an OpenBLAS that does not know many processors of the last years, and then
# multiplies matrices as if they were of 2004: building an index takes three times as long. It can
# be told which code to use, when it is loaded; numpy knows what the processor can do.
_CODE = "OPENBLAS_CORETYPE"
# The best first; newer versions of numpy name whole levels of x86.
_CODES = {
    **dict.fromkeys(("X86_V4", "AVX512_SKX"), "SkylakeX"),
    **dict.fromkeys(("X86_V3", "AVX2"), "Haswell"),
}


def _load() -> Any:
    can = np.show_config(mode="dicts").get("SIMD Extensions", {})
    there = {*can.get("baseline", ()), *can.get("found", ())}
    code = next((code for feature, code in _CODES.items() if feature in there), None)
    is_ours = code is not None and _CODE not in os.environ
    if is_ours:
        os.environ[_CODE] = str(code)
    try:
        import faiss
    except ImportError as error:
        raise InvalidError(
            "vector indexes need an extra: pip install 'tailrace[vector]'"
        ) from error
    finally:
        if is_ours:
            del os.environ[_CODE]
    return faiss


faiss: Any = _load()
Vectors = npt.NDArray[np.float32]
_AT_ONCE = 64  # queries that are compared with many vectors
_SMALL, _LEAST = 1e-10, 1e-44  # the length of a vector; a number that is not zero


@contextmanager
def one_thread() -> Iterator[None]:
    """Let faiss use this thread alone: for short work, and where others need the cores.

    Its threads wait for each other by spinning: on a busy machine, a search that takes a
    millisecond by itself took thirty with two.
    """
    before = faiss.omp_get_max_threads()  # of this thread
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def metric_of(options: VectorOptions) -> int:
    """Faiss's number for the metric; cosine is the inner product of vectors of length 1."""
    return int(faiss.METRIC_L2 if options.metric == L2 else faiss.METRIC_INNER_PRODUCT)


def prepared(options: VectorOptions, vectors: Vectors) -> Vectors:
    """Vectors as they are compared."""
    if options.metric == COSINE:
        vectors = np.array(vectors, np.float32, order="C")
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        # The squares of small numbers vanish, unless these are scaled up first.
        small = np.flatnonzero(lengths < _SMALL)
        vectors[small] /= np.maximum(np.abs(vectors[small]).max(axis=1, initial=0), _LEAST)[:, None]
        faiss.normalize_L2(vectors)  # leaves zeros alone: nothing is similar to them
    return np.ascontiguousarray(vectors, np.float32)


def to_vectors(column: pa.ChunkedArray, dimension: int) -> Vectors:
    """A column of lists, none of them NULL, as a matrix."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    values = array.flatten().to_numpy(zero_copy_only=False)
    if len(values) != len(array) * dimension:
        raise InvalidError(f"a vector has another dimension than the index's {dimension}")
    matrix: Vectors = values.reshape(-1, dimension).astype(np.float32, copy=False)
    return matrix


def nearest(
    options: VectorOptions, queries: Vectors, vectors: Vectors, count: int
) -> npt.NDArray[np.int64]:
    """The numbers of the vectors that are nearest to each query, the nearest first.

    By numpy: for a few hundred queries it takes a third of the time that faiss does.
    """
    lengths = np.einsum("ij,ij->i", vectors, vectors) if options.metric == L2 else None
    numbers = []
    for start in range(0, len(queries), _AT_ONCE):
        scores = queries[start : start + _AT_ONCE] @ vectors.T
        if lengths is not None:
            scores = 2 * scores - lengths
        some = np.argpartition(scores, -count, axis=1)[:, -count:]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
        numbers.append(np.take_along_axis(some, order, axis=1))
    return np.concatenate(numbers)


def flat_index(options: VectorOptions, vectors: Vectors) -> Any:
    """An index of faiss that compares with all of its vectors."""
    index = faiss.IndexFlat(options.dimension, metric_of(options))
    index.add(vectors)
    return index


def all_of(index: Any) -> Vectors:
    """All vectors of a flat index."""
    vectors: Vectors = index.reconstruct_n(0, index.ntotal)
    return vectors


def query_vector(options: VectorOptions, given: object) -> Vectors:
    """A vector that a user searches for, as a matrix of one row."""
    try:
        vector = np.asarray(given, np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError(
            f"a vector index is searched for {options.dimension} numbers, not for {show(given)}"
        ) from None
    if vector.shape != (options.dimension,):
        raise InvalidError(
            f"the vector has {vector.size if vector.ndim == 1 else vector.shape} elements; "
            f"the index has the dimension {options.dimension}"
        )
    if not np.isfinite(vector).all():
        raise InvalidError("the vector has elements that are not finite")
    return prepared(options, vector.reshape(1, -1))
