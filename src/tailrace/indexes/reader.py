"""An index opened for searching, and what is kept open from one search to the next.

Always true: a reader shows one state, whatever is committed or merged meanwhile. Segments are
opened once for all readers that use them.
"""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.indexes.build import Builder
from tailrace.indexes.cache import SegmentCache
from tailrace.indexes.definition import FULLTEXT, Definition
from tailrace.indexes.pack import fetch_pack
from tailrace.indexes.rowmap import Gone, RowMap
from tailrace.indexes.segment import Centroids, Segment
from tailrace.indexes.state import State
from tailrace.objects import Storage
from tailrace.store.schema import Column

T = TypeVar("T")
_OPEN_JOBS = 64  # indexes that are held open
_OPEN_READERS = 4  # states of each


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Rows that were found, the best first."""

    scores: npt.NDArray[np.float64]
    files: npt.NDArray[np.int64]  # where they are in the table
    positions: npt.NDArray[np.int64]
    keys: pa.Table


@dataclass(frozen=True)
class OpenSegment:
    """A segment at hand: its row map and, of vectors, the vectors."""

    rows: RowMap
    checksum: str
    # Of text, links to its files: they stay as long as this does, whatever the cache evicts.
    directory: Path | None
    vectors: Any = None


class Reader:
    """Searches one state, or those of its rows that a condition is true of."""

    def __init__(
        self, opener: Opener, state: State, segments: list[OpenSegment], only: Gone | None
    ) -> None:
        self.state = state
        self._opener, self._segments = opener, segments
        self.hidden = [_hidden(segment.rows, state, only) for segment in segments]

    @cached_property
    def live(self) -> int:
        """How many rows it may find."""
        return sum(int((~hidden).sum()) for hidden in self.hidden)

    def narrowed(self, only: Gone) -> Reader:
        """The same with only some of the table's rows."""
        return Reader(self._opener, self.state, self._segments, only)

    def places(self) -> list[dict[int, npt.NDArray[np.int64]]]:
        """The places of the rows that each segment may find."""
        pairs = zip(self._segments, self.hidden, strict=True)
        return [segment.rows.by_file(~hidden) for segment, hidden in pairs]

    def divided_by(self, centroids: int) -> list[Any]:
        """The faiss indexes of its segments that are divided by some centroids."""
        every = [one.vectors for one in self._segments if one.vectors is not None]
        return [one.index for one in every if one.centroids == centroids]

    # --- searching --------------------------------------------------------------------------

    @cached_property
    def searcher(self) -> Any:
        """Of tantivy or faiss."""
        definition = self.state.definition
        pairs = list(zip(self._segments, self.hidden, strict=True))
        if definition.kind == FULLTEXT:
            return self._opener.text_searcher(definition, pairs)
        from tailrace.indexes.vectors.searcher import VectorFiles, VectorSearcher

        probes = {i: one.probes for i, one in self.state.parts.centroids.items()}
        files = [VectorFiles(segment.vectors, hidden) for segment, hidden in pairs]
        return VectorSearcher(definition, files, probes)

    @cached_property
    def queries(self) -> Any:
        """Makes tantivy's queries."""
        from tailrace.indexes.text.query import QueryMaker

        definition = self.state.definition
        names = [column.name for column in definition.columns_of(self.state.table)]
        return QueryMaker(definition, names)

    def search(self, query: object, limit: int) -> Hits:
        """The best rows for a text or a vector."""
        definition = self.state.definition
        if definition.kind == FULLTEXT:
            made = self.queries.make(query)
            found = self.searcher.search(made, min(limit, self.live)) if self.live else []
        else:
            from tailrace.indexes.vectors.library import query_vector

            found = self.searcher.search(query_vector(definition, query), limit)
        return self._hits(found)

    @cached_property
    def _keys(self) -> tuple[tuple[Column, ...], pa.Schema]:
        columns = self.state.table.key_columns
        return columns, pa.schema([(column.name, column.type) for column in columns])

    def _hits(self, found: list[tuple[float, int, int]]) -> Hits:
        columns, schema = self._keys
        scores, orders, positions = zip(*found, strict=True) if found else ((), (), ())
        owners, within = np.array(orders, np.int64), np.array(positions, np.int64)
        files, places = np.empty(len(found), np.int64), np.empty(len(found), np.int64)
        # Segment by segment, and then in the order of the hits again.
        keys: list[list[pa.Array]] = [[pa.array([], column.type)] for column in columns]
        ranks = [np.empty(0, np.int64)]
        for order in sorted(set(orders)):
            own = np.flatnonzero(owners == order)
            rows = self._segments[order].rows
            files[own], places[own] = rows.files[within[own]], rows.positions[within[own]]
            for parts, values in zip(keys, rows.key_values(within[own], columns), strict=True):
                parts.append(values)
            ranks.append(own)
        back = pa.array(np.argsort(np.concatenate(ranks), kind="stable"))
        arrays = [pa.concat_arrays(parts).take(back) for parts in keys]
        return Hits(
            scores=np.array(scores, np.float64),
            files=files,
            positions=places,
            keys=pa.Table.from_arrays(arrays, schema=schema),
        )


def _hidden(rows: RowMap, state: State, only: Gone | None) -> npt.NDArray[np.bool_]:
    hidden = rows.find(state.gone)
    return hidden if only is None else hidden | ~rows.find(only)


class Opener:
    """Opens segments, and keeps the latest of them and of the readers."""

    def __init__(self, storage: Storage, cache: SegmentCache) -> None:
        self._storage, self._cache = storage, cache
        # What a reader uses is open; what none uses any more goes with the last that did.
        self._segments: WeakValueDictionary[Hashable, OpenSegment] = WeakValueDictionary()
        self._quantizers: _Latest[Any] = _Latest(_OPEN_READERS)
        self._jobs: _Latest[_Latest[Reader]] = _Latest(_OPEN_JOBS)

    def reader(self, job_id: int, key: Hashable, make: Callable[[], Reader]) -> Reader:
        """A reader that was opened before, or a new one."""
        own = self._jobs.get(job_id, lambda: _Latest(_OPEN_READERS))
        return own.get(key, make)

    def forget(self) -> None:
        """Begin anew: somebody has removed files that were open."""
        self._jobs.clear()
        self._segments.clear()

    def open(self, state: State, *, tail: bool) -> Reader:
        """A reader of a state; with its tail, if that is wanted."""
        segments = [self._opened(state, one) for one in state.parts.segments if one.path]
        if tail and state.tail_rows:
            segments += self._open_tail(state)
        return Reader(self, state, segments, None)

    def _opened(self, state: State, segment: Segment) -> OpenSegment:
        key = (segment.checksum, state.definition)
        found = self._segments.get(key)
        if found is None:
            found = self._segments[key] = self._open(state, segment)
        return found

    def row_maps(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, RowMap]]:
        """The row maps of some segments."""
        for segment in segments:
            if segment.path:
                yield (
                    segment,
                    self._cache.use(self._storage, segment.path, segment.checksum, RowMap.read),
                )

    def list_sizes(self, state: State, centroids: Centroids) -> npt.NDArray[np.int64]:
        """How many vectors are in each of the lists of some centroids."""
        from tailrace.indexes.vectors.writer import read_lists

        sizes = np.zeros(centroids.lists, np.int64)
        for segment in state.parts.segments:
            if segment.path and segment.centroids == centroids.id:
                found = self._cache.use(self._storage, segment.path, segment.checksum, read_lists)
                sizes += np.bincount(found, minlength=centroids.lists)
        return sizes

    def first_unevenness(self, centroids: Centroids) -> float:
        """How uneven the lists of some centroids were when these were found."""
        from tailrace.indexes.vectors.centroids import first_unevenness

        return self._cache.use(self._storage, centroids.path, centroids.checksum, first_unevenness)

    def _open(self, state: State, segment: Segment) -> OpenSegment:
        def read(directory: Path) -> OpenSegment:
            return self._read(state.definition, segment, directory, state.parts.centroids)

        return self._cache.use(self._storage, segment.path, segment.checksum, read)

    def _read(
        self,
        definition: Definition,
        segment: Segment,
        directory: Path,
        centroids: Mapping[int, Centroids],
    ) -> OpenSegment:
        rows = RowMap.read(directory)
        if definition.kind == FULLTEXT:
            links = self._cache.temporary()
            try:
                for file in directory.iterdir():
                    os.link(file, links / file.name)
            except BaseException:
                shutil.rmtree(links, ignore_errors=True)
                raise
            opened = OpenSegment(rows, segment.checksum, links)
            weakref.finalize(opened, shutil.rmtree, links, ignore_errors=True)
            return opened
        from tailrace.indexes.vectors.searcher import OpenVectors

        number = segment.centroids
        quantizer = None if number is None else self.quantizer(definition, centroids[number])
        vectors = OpenVectors.open(definition, directory, number, quantizer)
        return OpenSegment(rows, segment.checksum, None, vectors)

    def quantizer(self, definition: Definition, centroids: Centroids) -> Any:
        """Centroids as faiss uses them."""
        from tailrace.indexes.vectors.centroids import load

        def make() -> Any:
            return self._cache.use(
                self._storage,
                centroids.path,
                centroids.checksum,
                lambda directory: load(definition, directory),
            )

        return self._quantizers.get((centroids.checksum, definition), make)

    def _open_tail(self, state: State) -> list[OpenSegment]:
        """Segments of what the index does not have yet, in a directory of their own."""
        place = self._cache.temporary()
        beside = Storage(f"{place}/")
        builder = Builder(
            storage=_Beside(self._storage, beside),  # type: ignore[arg-type]
            definition=state.definition,
            columns=tuple(state.definition.columns_of(state.table)),
            keys=state.table.key_columns,
            directory="",
            txn_id="tail",
        )
        opened = []
        try:
            for segment in builder.run(state.tail, small=True):
                if segment.path:
                    directory = place / segment.checksum
                    directory.mkdir()
                    fetch_pack(beside, segment.path, segment.checksum, directory)
                    opened.append(self._read(state.definition, segment, directory, {}))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return opened

    def text_searcher(
        self, definition: Definition, segments: list[tuple[OpenSegment, npt.NDArray[np.bool_]]]
    ) -> Any:
        """Of the files of some segments."""
        from tailrace.indexes.text.searcher import TextFiles, TextSearcher

        temporary = self._cache.temporary()
        try:
            files = [
                TextFiles(one.directory, hidden)
                for one, hidden in segments
                if one.directory is not None
            ]
            return TextSearcher(definition, files, temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


class _Beside:
    """Reads the lake's objects, and writes elsewhere: what is never to be a part of the lake."""

    def __init__(self, lake: Storage, beside: Storage) -> None:
        self.open_read, self.open_write, self.sync = lake.open_read, beside.open_write, beside.sync
        self.uri = lake.uri


class _Latest(Generic[T]):
    """The values that were used last."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._held: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that is held, or a new one."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = make()  # outside of the lock: others search meanwhile
        with self._lock:
            kept = self._held.setdefault(key, made)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return kept

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
