"""The files that a table consists of and the places of rows in them, as frozen values.

A data file holds rows; a delete file says which of its rows are gone, and since which snapshot.
A row's identity is the pair (file key, position), equivalent to its DuckLake row id. Positions are
sorted arrays; as a bitmap, with a bit for each row up to the last position, they go to Spark and
come from there. A `RowRange` is rows of one file.

Always true: whoever reads a range, and when, gets the same rows. Ranges can be sent to Spark's
workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt


class Op(StrEnum):
    """What a data file came from."""

    APPEND = "append"
    UPSERT = "upsert"
    COMPACTION = "compaction"  # not a change: the feed leaves such files out


@dataclass(frozen=True, kw_only=True)
class ColumnStats:
    """Statistics of one column in one file; bounds are text, as the catalog stores them."""

    column_id: int
    size: int  # compressed bytes
    values: int  # not NULL
    nulls: int
    min: str | None  # None: unknown
    max: str | None
    has_nan: bool | None = None  # for floats


@dataclass(frozen=True, kw_only=True)
class DeleteFile:
    """The deleted positions of one data file."""

    id: int
    path: str  # relative to the lake
    data_path: str  # the data file's, relative to the lake
    begin: int  # the snapshot of the first delete in it
    last: int  # of the latest one; above `begin`, the file keeps a snapshot for each position
    count: int
    size: int

    @property
    def is_partial(self) -> bool:
        """Whether the file keeps a snapshot for each position."""
        return self.last > self.begin


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """An object with rows of a table."""

    key: int  # the value of its hidden column `_file`
    path: str  # relative to the lake
    rows: int
    size: int
    footer: int
    op: Op
    id: int = -1  # DuckLake's data_file_id; -1 until committed
    begin: int = -1  # the snapshot from which it is visible; -1 until committed
    end: int | None = None  # the snapshot from which it is no longer
    rewritten: bool = False  # it ended because its rows went to files of a compaction
    deletes: DeleteFile | None = None
    stats: tuple[ColumnStats, ...] = ()  # only in files that this process has just written


Positions = npt.NDArray[np.int64]  # sorted, no position twice
PositionsByFile = dict[int, Positions]  # by the keys of files

NONE: Positions = np.empty(0, np.int64)


def union(parts: Iterable[Positions]) -> Positions:
    """All positions of the parts, sorted, none twice."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


def to_words(positions: Positions) -> npt.NDArray[np.int64]:
    """A bitmap as 64-bit words: bit p % 64 of word p // 64 stands for position p."""
    bits = np.zeros((int(positions[-1]) // 64 + 1) * 64 if len(positions) else 0, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


def to_bitmap(positions: Positions) -> bytes:
    """A bitmap as bytes, to bring many positions from Spark's workers to the driver."""
    bits = np.zeros(int(positions.max()) + 1 if len(positions) else 0, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def from_bitmap(bitmap: bytes) -> Positions:
    """The positions in a bitmap."""
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class RowRange:
    """Some rows of a data file."""

    file: DataFile
    start: int  # positions from here
    stop: int  # to before here
    keep: Positions | None = None  # only these of them; None: all
    dead: Positions = field(default_factory=lambda: NONE)  # but not these

    @staticmethod
    def of(file: DataFile, *, without: Positions | None = None) -> RowRange:
        """All rows of a file, or all but some."""
        dead = NONE if without is None else without
        return RowRange(file=file, start=0, stop=file.rows, dead=dead)

    @staticmethod
    def at(file: DataFile, positions: Positions) -> RowRange:
        """Some rows of a file."""
        return RowRange(file=file, start=0, stop=file.rows, keep=positions)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        if self.keep is not None:
            return len(self.keep)
        return self.stop - self.start - len(self.dead)

    def count(self, first: int, last: int) -> int:
        """How many of its rows are from one position to before another."""
        first, last = max(first, self.start), min(last, self.stop)
        if self.keep is not None:
            return len(self.keep[_between(self.keep, first, last)])
        return max(0, last - first) - len(self.dead[_between(self.dead, first, last)])

    def between(self, first: int, last: int) -> RowRange:
        """Its rows from one position to before another."""
        if first <= self.start and last >= self.stop:
            return self
        start = min(max(first, self.start), self.stop)
        stop = max(start, min(last, self.stop))
        keep = None if self.keep is None else self.keep[_between(self.keep, start, stop)]
        dead = self.dead[_between(self.dead, start, stop)]
        return replace(self, start=start, stop=stop, keep=keep, dead=dead)

    def positions(self) -> Positions:
        """The positions of its rows."""
        if self.keep is not None:
            return self.keep
        every = np.arange(self.start, self.stop, dtype=np.int64)
        return np.delete(every, self.dead - self.start) if len(self.dead) else every


def _between(positions: Positions, first: int, last: int) -> slice:
    if not len(positions):
        return slice(0, 0)
    low, high = np.searchsorted(positions, [first, max(first, last)])
    return slice(int(low), int(high))


def split(
    ranges: Sequence[RowRange], tasks: int, group_rows: int, *, whole_groups: bool = False
) -> list[list[RowRange]]:
    """The ranges in about equal shares: of whole row groups, where there are enough of them.

    Else several tasks read the same group, each for its own rows of it. With `whole_groups`, each
    group of the usual size has one task: for rows of which reading is much of the work.
    """
    share = -(-sum(one.rows for one in ranges) // max(1, tasks))
    most = group_rows if whole_groups else min(group_rows, max(1, share))
    cut = [part for one in ranges for part in _cut(one, most)]
    shares: list[list[RowRange]] = [[]]
    held = 0
    for part in cut:
        if held + part.rows // 2 > share and shares[-1] and len(shares) < tasks:
            shares.append([])
            held = 0
        shares[-1].append(part)
        held += part.rows
    return [some for some in shares if some]


def _cut(whole: RowRange, most: int) -> Iterator[RowRange]:
    if whole.stop - whole.start <= most or not whole.rows:
        yield whole  # also an empty one: that its file was looked at has to be known
        return
    for start in range(whole.start, whole.stop, most):
        yield whole.between(start, start + most)
