"""Pieces of data files: rows to index or to ask a condition of, and how they are read.

Always true: a piece names rows by the place that they have for ever, their file and their position
in it; so whoever reads it, and when, gets the same rows. Pieces can be sent to Spark's workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.objects import Storage
from tailrace.store.deletes import NOTHING, Positions
from tailrace.store.files import DataFile
from tailrace.store.scan import check_rows, group_starts, named_rows
from tailrace.store.schema import Column

Numbered = tuple[npt.NDArray[np.int64], pa.Table]  # positions in a file, and their rows


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some rows of a data file."""

    file: DataFile
    start: int  # positions from here
    stop: int  # to before here
    keep: Positions | None = None  # only these of them; None: all
    dead: Positions = field(default_factory=lambda: NOTHING.positions)  # but not these

    @property
    def rows(self) -> int:
        return self.stop - self.start - len(self.dead) if self.keep is None else len(self.keep)

    def within(self, first: int, last: int) -> Positions:
        """The positions of its rows from one to before another."""
        first, last = max(first, self.start), min(last, self.stop)
        if self.keep is not None:
            return self.keep[_between(self.keep, first, last)]
        dead = self.dead[_between(self.dead, first, last)]
        every = np.arange(first, max(first, last), dtype=np.int64)
        return np.delete(every, dead - first) if len(dead) else every


def _between(positions: Positions, first: int, last: int) -> slice:
    low, high = np.searchsorted(positions, [first, max(first, last)])
    return slice(int(low), int(high))


def piece_without(file: DataFile, dead: Positions) -> Piece:
    """All rows of a file but some."""
    return Piece(file=file, start=0, stop=file.rows, dead=dead)


def piece_of(file: DataFile, positions: Positions) -> Piece:
    """Some rows of a file."""
    return Piece(file=file, start=0, stop=file.rows, keep=positions)


def read(storage: Storage, piece: Piece, columns: Sequence[Column]) -> Iterator[Numbered]:
    """The rows of a piece, a row group at a time; groups without one are not read."""
    if not piece.rows:
        return
    with storage.open_read(piece.file.path) as source:
        parquet = pq.ParquetFile(source)
        check_rows(storage, piece.file, parquet.metadata)
        starts = group_starts(parquet.metadata)
        present = set(parquet.schema_arrow.names)
        names = [column.physical for column in columns if column.physical in present]
        for group in range(parquet.num_row_groups):
            wanted = piece.within(int(starts[group]), int(starts[group + 1]))
            if not len(wanted):
                continue
            count = int(starts[group + 1] - starts[group])
            rows = named_rows(parquet.read_row_group(group, columns=names), columns, count)
            yield wanted, _some(rows, wanted - starts[group])


def _some(rows: pa.Table, places: Positions) -> pa.Table:
    """Some rows of a table; no copy, where they are one after the other."""
    first, count = int(places[0]), len(places)
    if int(places[-1]) - first + 1 == count:
        return rows.slice(first, count)
    return rows.take(pa.array(places))


def split(
    pieces: Sequence[Piece], tasks: int, group_rows: int, *, whole_groups: bool = False
) -> list[list[Piece]]:
    """The pieces in about equal shares: of whole row groups, where there are enough of them.

    Else several tasks read the same group, each for its own rows of it. With `whole_groups`, each
    group of the usual size has one task: for rows of which reading is much of the work.
    """
    share = -(-sum(piece.rows for piece in pieces) // max(1, tasks))
    most = group_rows if whole_groups else min(group_rows, max(1, share))
    cut = [part for piece in pieces for part in _cut(piece, most)]
    shares: list[list[Piece]] = [[]]
    held = 0
    for part in cut:
        if held + part.rows // 2 > share and shares[-1] and len(shares) < tasks:
            shares.append([])
            held = 0
        shares[-1].append(part)
        held += part.rows
    return [some for some in shares if some]


def _cut(piece: Piece, most: int) -> Iterator[Piece]:
    if piece.stop - piece.start <= most or not piece.rows:
        yield piece  # also an empty one: that its file was looked at has to be known
        return
    for start in range(piece.start, piece.stop, most):
        stop = min(start + most, piece.stop)
        part = replace(piece, start=start, stop=stop, dead=_cut_out(piece.dead, start, stop))
        yield part if piece.keep is None else replace(part, keep=_cut_out(piece.keep, start, stop))


def _cut_out(positions: Positions, start: int, stop: int) -> Positions:
    return positions[_between(positions, start, stop)]
