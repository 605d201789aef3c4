"""What the footer of a data file says: its row groups, and what each can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.store import stats
from tailrace.store.reader.filters import Known
from tailrace.store.schema import Column

# Decoded, a footer takes about so many times its size in the file.
_DECODED = 4


class Layout:
    """See the module."""

    def __init__(self, footer: pq.FileMetaData) -> None:
        self.footer = footer
        counts = (footer.row_group(i).num_rows for i in range(footer.num_row_groups))
        # The position at which each row group starts, and the number of rows at the end.
        self.starts: list[int] = list(accumulate(counts, initial=0))
        self.present = frozenset(footer.schema.to_arrow_schema().names)
        self._leaves = stats.leaves(footer)
        # By a column's name and type, what is known of it in each row group.
        self._known: dict[tuple[str, pa.DataType], list[Known]] = {}

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return int(self.footer.serialized_size) * _DECODED

    def span(self, group: int) -> tuple[int, int]:
        """The first position of a row group, and the one after its last."""
        return self.starts[group], self.starts[group + 1]

    def rows(self, groups: range) -> int:
        """How many rows are in row groups that follow each other."""
        return self.starts[groups.stop] - self.starts[groups.start]

    def shares(self, groups: Sequence[int], most: int) -> Iterator[list[int]]:
        """Row groups in shares of at most so many rows, or of one row group."""
        share: list[int] = []
        held = 0
        for group in groups:
            first, last = self.span(group)
            if share and held + last - first > most:
                yield share
                share, held = [], 0
            share.append(group)
            held += last - first
        if share:
            yield share

    def runs(self, groups: Sequence[int], most: int) -> Iterator[range]:
        """Row groups in runs of those that follow each other, of at most so many rows or one."""
        for share in self.shares(groups, most):
            start = 0
            for at in range(1, len(share) + 1):
                if at == len(share) or share[at] != share[at - 1] + 1:
                    yield range(share[start], share[at - 1] + 1)
                    start = at

    def known(self, group: int, column: Column) -> Known:
        """What a row group's statistics say of a column."""
        known = self._known.get((column.physical, column.type))
        if known is None:
            known = [self._known_of(one, column) for one in range(self.groups)]
            self._known[column.physical, column.type] = known
        return known[group]

    def _known_of(self, group: int, column: Column) -> Known:
        place = self._leaves.get(column.physical)
        if place is None:
            # Written before the column was added, unless it is nested.
            return Known(bounds=None, nulls=None, only_nulls=column.physical not in self.present)
        chunk = self.footer.row_group(group).column(place)
        found = chunk.statistics
        if found is None:
            return Known(bounds=None, nulls=None)
        nulls = found.null_count
        return Known(
            bounds=stats.of_chunk(column.type, found),
            nulls=nulls,
            only_nulls=nulls is not None and nulls == chunk.num_values,
        )
