"""The one reader of a table's files, for everything that reads rows in this process.

A read answers five questions:

1. Which files? Those of a `Scan` (visibility), less those that cannot hold a wanted row by their
   statistics (`stats`).
2. Which of their rows? A `RowRange`: positions of a file, without the deleted ones (`files`).
3. Which row groups? Those that hold such a position, and by their statistics may hold a wanted row.
4. Which columns? The ones that a filter looks at first, the others only where it found something.
   The rows come as Arrow batches with their positions. Both are settled here.
5. Here, or on Spark? What a read costs, and what this process takes on (`scan`).

Objects are opened and decoded in `open_file` alone.

Always true: one large row group is held at a time, or as many rows of small ones, however many
rows a range has; of groups without a wanted row nothing is read, and of columns that a filter does
not look at nothing but where it found something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.objects import Storage
from tailrace.store.files import Positions, RowRange
from tailrace.store.open_file import KeptFiles, OpenFile, open_file, schema_of
from tailrace.store.schema import Column
from tailrace.store.stats import Filter

# Rows that are decoded at once, unless a row group has more.
_BATCH_ROWS = 131_072
# A wanted row in so many is copied by a mask; fewer, each by its place.
_SPARSE = 8


class Batch(NamedTuple):
    """Rows of row groups that follow each other."""

    positions: Positions  # in the file
    rows: pa.Table  # under the columns' names


def read(
    storage: Storage,
    rows: RowRange,
    columns: Sequence[Column],
    *,
    where: Filter | None = None,
    begin_in: tuple[int, int] | None = None,
    kept: KeptFiles | None = None,
    pre_buffer: bool = False,
) -> Iterator[Batch]:
    """The rows of a range that a filter wants, or all.

    `begin_in`: only of row groups whose first position is from one to before another. So tasks
    divide a file, and each row group is decoded by one of them.
    """
    if not rows.rows:
        return
    with open_file(storage, rows.file, kept=kept, pre_buffer=pre_buffer) as opened:
        groups = opened.groups(rows, where, begin_in=begin_in)
        yield from read_groups(opened, groups, rows, columns, where)


def read_rows(
    storage: Storage, rows: RowRange, columns: Sequence[Column], *, kept: KeptFiles | None = None
) -> pa.Table:
    """All rows of a range at once, for those that are few."""
    parts = [batch.rows for batch in read(storage, rows, columns, kept=kept)]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables([schema_of(columns).empty_table(), *parts])


def read_groups(
    opened: OpenFile,
    groups: Iterable[int],
    rows: RowRange,
    columns: Sequence[Column],
    where: Filter | None = None,
    *,
    use_threads: bool = True,
) -> Iterator[Batch]:
    """The wanted rows of a range that are in some row groups of its file."""
    looked_at: tuple[Column, ...] = () if where is None else where.looks_at
    layout = opened.layout
    others = [column for column in columns if column not in looked_at]
    for run in layout.runs(list(groups), _BATCH_ROWS):
        first, last = layout.starts[run.start], layout.starts[run.stop]
        positions = rows.between(first, last).positions()
        seen: pa.Table | None = None
        if where is not None and looked_at:
            seen = opened.read_groups(run, looked_at, use_threads=use_threads)
            wanted = where.found_in(seen)
            if len(positions) < last - first:
                positions = positions[wanted[positions - first]]
            else:
                positions = np.flatnonzero(wanted) + first
        ends = np.searchsorted(positions, layout.starts[run.start : run.stop + 1])
        for part in layout.runs((np.flatnonzero(np.diff(ends)) + run.start).tolist(), _BATCH_ROWS):
            start, stop = layout.starts[part.start], layout.starts[part.stop]
            here = positions[ends[part.start - run.start] : ends[part.stop - run.start]]
            held = opened.read_groups(part, others, use_threads=use_threads)
            if seen is not None and columns:
                near = seen.slice(start - first, stop - start)
                held = pa.table(
                    [(near if c in looked_at else held).column(c.name) for c in columns],
                    schema=schema_of(columns),
                )
            yield Batch(here, _some(held, here - start) if columns else held)


def _some(rows: pa.Table, places: Positions) -> pa.Table:
    """Some rows of a table; no copy where they are one after the other.

    But for nested columns: PySpark makes no DataFrame of a slice of lists with NULLs.
    """
    first, count = int(places[0]), len(places)
    if count == rows.num_rows:
        return rows
    is_run = int(places[-1]) - first + 1 == count
    if is_run and not any(pa.types.is_nested(column.type) for column in rows.schema):
        return rows.slice(first, count)
    if count * _SPARSE < rows.num_rows:
        return rows.take(pa.array(places))
    mask = np.zeros(rows.num_rows, bool)
    mask[places] = True
    return rows.filter(pa.array(mask))
