"""Row ranges: rows of a data file, by the positions that they have for ever.

Always true: whoever reads a range, and when, gets the same rows. Ranges can be sent to Spark's
workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tailrace.store.files import DataFile
from tailrace.store.positions import NONE, Positions


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
