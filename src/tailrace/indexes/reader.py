"""Opens indexes for searching, and keeps them open from one search to the next.

Always true: a reader shows one snapshot, whatever is committed or merged meanwhile. A segment is
opened once for all readers that use it, and its rows are looked for once for those readers whose
snapshots have the same files of compactions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.indexes.build import Builder
from tailrace.indexes.definition import Definition
from tailrace.indexes.index_snapshot import IndexSnapshot
from tailrace.indexes.kind import Hit, Searcher
from tailrace.indexes.row_addresses import LostRows, RowAddresses, RowSet, follow
from tailrace.indexes.segment import Centroids, Segment
from tailrace.indexes.segment_files import SegmentCache, fetch_archive
from tailrace.lru import LruCache
from tailrace.objects import Storage
from tailrace.store.open_file import KeptFiles
from tailrace.store.schema import Column

T = TypeVar("T")
_OPEN_JOBS = 64  # indexes that are held open
_OPEN_READERS = 4  # states of each


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Rows that were found, the best first: their scores, addresses and keys."""

    scores: npt.NDArray[np.float64]
    files: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    keys: pa.Table


@dataclass(frozen=True)
class Content:
    """What the kind of a segment keeps open of its files."""

    opened: Any


@dataclass(frozen=True)
class OpenSegment:
    """A segment at hand: where its rows are, and what is in it."""

    rows: RowAddresses
    content: Content


class Reader:
    """Searches an index at one snapshot, or those of its rows that fulfil a condition."""

    def __init__(
        self,
        opener: Opener,
        snapshot: IndexSnapshot,
        segments: list[OpenSegment],
        only: RowSet | None,
    ) -> None:
        self.snapshot = snapshot
        self._opener, self._segments = opener, segments
        self._hidden = [_hidden(segment.rows, snapshot.gone, only) for segment in segments]

    @cached_property
    def live(self) -> int:
        """How many rows it can find."""
        return sum(int((~hidden).sum()) for hidden in self._hidden)

    def narrowed(self, only: RowSet) -> Reader:
        """The same with only some of the table's rows."""
        return Reader(self._opener, self.snapshot, self._segments, only)

    @property
    def opened(self) -> list[Any]:
        """What its kind keeps open of each segment."""
        return [segment.content.opened for segment in self._segments]

    # --- searching --------------------------------------------------------------------------

    @cached_property
    def _searcher(self) -> Searcher:
        segments = list(zip(self.opened, self._hidden, strict=True))
        kind = self.snapshot.definition.kind
        return kind.searcher(self.snapshot, segments, self._opener.temporary)

    def search(self, query: object, limit: int) -> Hits:
        """The best rows for a text or a vector."""
        return self._hits(self._searcher.search(query, limit))

    def highlights(self, query: object, texts: Sequence[Sequence[str | None]]) -> list[str | None]:
        """For each row that was found a piece of HTML that shows why; `texts` are its columns."""
        return self._searcher.highlights(query, texts)

    @cached_property
    def _keys(self) -> tuple[tuple[Column, ...], pa.Schema]:
        columns = self.snapshot.table.key_columns
        return columns, pa.schema([(column.name, column.type) for column in columns])

    def _hits(self, hits: list[Hit]) -> Hits:
        columns, schema = self._keys
        scores, orders, positions = zip(*hits, strict=True) if hits else ((), (), ())
        owners, within = np.array(orders, np.int64), np.array(positions, np.int64)
        files, places = np.empty(len(hits), np.int64), np.empty(len(hits), np.int64)
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


def _hidden(rows: RowAddresses, gone: RowSet, only: RowSet | None) -> npt.NDArray[np.bool_]:
    hidden = rows.find(gone)
    return hidden if only is None else hidden | ~rows.find(only)


def _lost_rows(snapshot: IndexSnapshot, segment: Segment, directory: Path) -> LostRows:
    return LostRows.read(directory, snapshot.lost, segment.first_ids)


class Opener:
    """Opens segments, and keeps the readers that were used last."""

    def __init__(
        self, storage: Storage, *, cache_bytes: int, kept: KeptFiles | None = None
    ) -> None:
        self._storage, self._cache = storage, SegmentCache(limit=cache_bytes)
        self._kept = kept  # of the table's files
        # A segment is closed with the last reader that uses it; where its rows are may change.
        self._contents: WeakValueDictionary[Hashable, Content] = WeakValueDictionary()
        self._segments: WeakValueDictionary[Hashable, OpenSegment] = WeakValueDictionary()
        self._centroids: LruCache[Any] = LruCache(_OPEN_READERS)
        self._jobs: LruCache[LruCache[Reader]] = LruCache(_OPEN_JOBS)

    def reader(self, job_id: int, key: Hashable, make: Callable[[], Reader]) -> Reader:
        """A reader that was opened before, or a new one."""
        own = self._jobs.get_or_make(job_id, lambda: LruCache(_OPEN_READERS))
        return own.get_or_make(key, make)

    def forget(self) -> None:
        """Forget all that is open: somebody has removed the files."""
        self._jobs.clear()
        self._segments.clear()
        self._contents.clear()

    def open(self, snapshot: IndexSnapshot, *, tail: bool) -> Reader:
        """A reader of a snapshot, on request with the tail that is not indexed yet."""
        segments = self._open_segments(snapshot)
        if tail and snapshot.tail_rows:
            segments += self._open_tail(snapshot)
        return Reader(self, snapshot, segments, None)

    def _open_segments(self, snapshot: IndexSnapshot) -> list[OpenSegment]:
        stored = [one for one in snapshot.parts.segments if one.path]
        moved_to = tuple(file.key for file in snapshot.moved_to)
        keys: list[Hashable] = [
            (one.checksum, snapshot.definition, moved_to if snapshot.has_moved(one) else ())
            for one in stored
        ]
        opened = [self._segments.get(key) for key in keys]
        missing = [number for number, one in enumerate(opened) if one is None]
        rows = self.addresses(snapshot, [stored[number] for number in missing])
        for number, own in zip(missing, rows, strict=True):
            content = self._content(snapshot, stored[number])
            opened[number] = self._segments[keys[number]] = OpenSegment(own, content)
        return [one for one in opened if one is not None]

    def addresses(self, snapshot: IndexSnapshot, segments: Sequence[Segment]) -> list[RowAddresses]:
        """Where the rows of some segments are at a snapshot."""
        lost: dict[int, LostRows] = {}
        read: dict[int, RowAddresses] = {}
        for one in segments:
            if snapshot.has_moved(one):
                lost[one.id] = self.read(one, partial(_lost_rows, snapshot, one))
            else:
                read[one.id] = self.read(one, RowAddresses.read)
        moved = follow(self._storage, snapshot.moved_to, list(lost.values()), self._kept)
        read |= dict(zip(lost, moved, strict=True))
        return [read[one.id] for one in segments]

    def _content(self, snapshot: IndexSnapshot, segment: Segment) -> Content:
        key = (segment.checksum, snapshot.definition)
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = self.read(
                segment, lambda directory: self._open_content(snapshot, segment, directory)
            )
        return content

    def read(self, stored: Segment | Centroids, read: Callable[[Path], T]) -> T:
        """Read something of the files of a segment, or of centroids."""
        return self._cache.use(self._storage, stored.path, stored.checksum, read)

    def temporary(self) -> Path:
        """A new directory on the disk of the segments, for the caller to remove."""
        return self._cache.temporary()

    def _open_content(self, snapshot: IndexSnapshot, segment: Segment, directory: Path) -> Content:
        definition, number = snapshot.definition, segment.centroids
        divided = None
        if number is not None:
            divided = number, self._loaded(definition, snapshot.parts.centroids[number])
        return Content(definition.kind.open(definition, directory, self.temporary, divided))

    def _loaded(self, definition: Definition, centroids: Centroids) -> Any:
        """Centroids as searches use them."""
        from tailrace.indexes.vectors import training

        return self._centroids.get_or_make(
            (centroids.checksum, definition),
            lambda: self.read(centroids, lambda directory: training.load(definition, directory)),
        )

    def _open_tail(self, snapshot: IndexSnapshot) -> list[OpenSegment]:
        """The tail, indexed into segments in a temporary directory."""
        temporary = self._cache.temporary()
        outside = Storage(f"{temporary}/")
        builder = Builder(
            source=self._storage,
            storage=outside,
            definition=snapshot.definition,
            columns=tuple(snapshot.definition.columns_of(snapshot.table)),
            keys=snapshot.table.key_columns,
            directory="",
            txn_id="tail",
        )
        opened = []
        try:
            for segment in builder.run(snapshot.tail, small=True):
                if segment.path:
                    directory = temporary / segment.checksum
                    directory.mkdir()
                    fetch_archive(outside, segment.path, segment.checksum, directory)
                    content = self._open_content(snapshot, segment, directory)
                    opened.append(OpenSegment(RowAddresses.read(directory), content))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return opened
