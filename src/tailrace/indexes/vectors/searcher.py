"""Searches the vectors of several segments as if they were one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tailrace.indexes.kind import Hit, Searcher
from tailrace.indexes.vectors.comparison import (
    Vectors,
    all_of,
    faiss,
    flat_index,
    metric_of,
    one_thread,
    query_vector,
)
from tailrace.indexes.vectors.kind import L2, VectorOptions
from tailrace.indexes.vectors.writer import VECTORS, read_lists, whole

if TYPE_CHECKING:
    from tailrace.indexes.kind import Hidden

# Up to so many live rows, all of them are compared: lists only help with more.
_FEW = 20_000


@dataclass(frozen=True)
class OpenVectors:
    """One segment in memory."""

    index: Any  # of faiss, with positions as ids
    centroids: int | None  # None: all are compared

    @staticmethod
    def open(
        options: VectorOptions, directory: Path, centroids: int | None, quantizer: Any | None
    ) -> OpenVectors:
        vectors = np.load(directory / VECTORS, mmap_mode="r")
        if centroids is None:
            return OpenVectors(flat_index(options, np.ascontiguousarray(vectors)), None)
        index = divided_index(options, quantizer, half=vectors.dtype == np.float16)
        lists = read_lists(directory)
        middles = all_of(quantizer)
        for start in range(0, len(lists), 65_536):
            part = lists[start : start + 65_536]
            some = np.ascontiguousarray(vectors[start : start + 65_536])
            if some.dtype == np.float16:
                some = whole(some, middles[part])
            ids = np.arange(start, start + len(some), dtype=np.int64)
            index.add_core(
                len(some), faiss.swig_ptr(some), faiss.swig_ptr(ids), faiss.swig_ptr(part)
            )
        return OpenVectors(index, centroids)


def divided_index(options: VectorOptions, quantizer: Any, *, half: bool) -> Any:
    """An empty index whose vectors are divided by centroids, which many indexes may share.

    With `half`, it holds how vectors differ from their centroids, with half the precision.
    """
    shape = quantizer, options.dimension, quantizer.ntotal
    metric = metric_of(options)
    if half:
        kind = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(*shape, kind, metric, True)
    else:
        index = faiss.IndexIVFFlat(*shape, metric)
    index.is_trained = True
    index.own_fields = False
    index.referenced_objects = [quantizer]
    return index


class VectorSearcher(Searcher):
    """Searches the vectors of some segments."""

    def __init__(
        self,
        options: VectorOptions,
        segments: Sequence[tuple[OpenVectors, Hidden]],
        probes: Mapping[int, int],
    ) -> None:
        """`probes`: by centroids, the lists to look at for the recall that is wanted."""
        self._options = options
        self._is_l2 = options.metric == L2
        self._segments = [opened for opened, _ in segments]
        self._counts = [int((~hidden).sum()) for _, hidden in segments]
        self._selectors = [_Selector.of(hidden) for _, hidden in segments]
        self._probes = probes
        self._live = sum(self._counts)
        self._total = sum(len(hidden) for _, hidden in segments)

    def search(self, query: object, limit: int) -> list[Hit]:
        """The nearest rows, the nearest first."""
        vector = query_vector(self._options, query)
        wanted = min(limit, self._live)
        if not wanted:
            return []
        # Hidden rows take their share of each list: as many more lists are looked at.
        widened = self._total / self._live
        if self._live <= _FEW:
            widened = float("inf")
        with one_thread():
            while True:
                hits, is_exact = self._search(vector, wanted, widened)
                if len(hits) >= wanted or is_exact:
                    return hits
                widened *= 4

    def _search(self, query: Vectors, limit: int, widened: float) -> tuple[list[Hit], bool]:
        scores, orders, positions = [], [], []
        is_exact = True
        for order, opened in enumerate(self._segments):
            if not self._counts[order]:
                continue
            selector = self._selectors[order]
            params = None
            if opened.centroids is not None:
                lists = opened.index.nlist
                usual = self._probes[opened.centroids]
                probes = lists if widened == float("inf") else min(lists, int(usual * widened) + 1)
                is_exact &= probes == lists
                params = faiss.SearchParametersIVF(nprobe=probes, sel=selector and selector.native)
            elif selector is not None:
                params = faiss.SearchParameters(sel=selector.native)
            k = min(limit, self._counts[order])
            distances, ids = opened.index.search(query, k, params=params)
            there = ids[0] >= 0
            scores.append(distances[0][there])
            positions.append(ids[0][there])
            orders.append(np.full(int(there.sum()), order))
        values, owners, places = (np.concatenate(some) for some in (scores, orders, positions))
        best = np.argsort(values if self._is_l2 else -values, kind="stable")[:limit]
        shown = -np.sqrt(np.maximum(values[best], 0)) if self._is_l2 else values[best]
        triples = zip(shown.tolist(), owners[best].tolist(), places[best].tolist(), strict=True)
        return list(triples), is_exact


@dataclass(frozen=True)
class _Selector:
    """The live rows as faiss wants them; keeps the bits alive that faiss points to."""

    native: Any
    bits: npt.NDArray[np.uint8]

    @staticmethod
    def of(hidden: Hidden) -> _Selector | None:
        if not hidden.any():
            return None
        bits = np.packbits(~hidden, bitorder="little")
        return _Selector(faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits)), bits)
