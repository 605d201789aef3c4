"""Reads rows of data files as Arrow batches, a row group at a time.

Always true: one row group is held at a time, however many rows a range has; of groups without a
wanted row nothing is read, and of columns that a filter does not look at nothing but where it
found something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.objects import Storage
from tailrace.store.positions import Positions
from tailrace.store.reader.filters import Filter
from tailrace.store.reader.kept import KeptFiles
from tailrace.store.reader.opened import OpenFile, open_file, schema_of
from tailrace.store.reader.row_range import RowRange
from tailrace.store.schema import Column

# A wanted row in so many is copied by a mask; fewer, each by its place.
_SPARSE = 8


class Batch(NamedTuple):
    """Rows of one row group."""

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
    others = [column for column in columns if column not in looked_at]
    for group in groups:
        first, last = opened.span(group)
        positions = rows.between(first, last).positions()
        seen: dict[Column, pa.ChunkedArray] = {}
        if where is not None and looked_at:
            held = opened.read_group(group, looked_at, use_threads=use_threads)
            seen = dict(zip(looked_at, held.columns, strict=True))
            wanted = where.found_in(held)
            if len(positions) < last - first:
                positions = positions[wanted[positions - first]]
            else:
                positions = np.flatnonzero(wanted) + first
        if not len(positions):
            continue
        held = opened.read_group(group, others, use_threads=use_threads)
        if seen and columns:
            rest = iter(held.columns)
            arrays = [seen[column] if column in seen else next(rest) for column in columns]
            held = pa.table(arrays, schema=schema_of(columns))
        yield Batch(positions, _some(held, positions - first) if columns else held)


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
