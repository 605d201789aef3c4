"""Moves the rows of data files into new ones: fewer, larger, in order, and without deleted rows.

Owned here: how a compaction reads its sources, and the order in which their rows are written: that
of the primary key, else of the columns that a table is clustered by, else of the rows' ids, which
is the order in which they were inserted. Which files are rewritten is settled in `compaction`; how
files are laid out, in `write`.

Files of a table with a primary key are sorted by it, and so are most others by their rows' ids. So
this process merges them: it holds some row groups of each, and writes what comes before all that it
has still to read. For so many rows as it does that with, it takes a third of the time of Spark,
which does the rest.

Always true: the rows that the sources show at a snapshot are the rows of the new files, with the
same ids and the same values. Nothing of it is visible before a commit.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.settings import Settings, group_rows
from tailrace.spark_sql import types
from tailrace.store import stats
from tailrace.store.files import DataFile, Op, RowRange
from tailrace.store.open_file import Layout, open_file, schema_of
from tailrace.store.reader import read_groups
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan, each, pays
from tailrace.store.schema import FILE, POS, ROW_ID, ROW_ID_COLUMN, STORE_PREFIX, Column, TableInfo
from tailrace.store.spark_actions import run_over_rows
from tailrace.store.spark_scan import local_frame, to_df
from tailrace.store.write import FileWriter

# A file may become so many times as large as is asked for, rather than leave a small one behind;
# and so many times where Spark divides the rows.
_SLACK, _RANGE = 1.5, 2
# Rows that are handed to the writer at once: their columns are copied together.
_PIECE_ROWS = 131_072
# The column with the id of a file's first row, for Spark.
_FIRST = f"{STORE_PREFIX}first"
# Rows that are read have their ids like this.
_ROW_ID_FIELD = schema_of([ROW_ID_COLUMN]).field(0)

Places = npt.NDArray[np.int64]
Key = tuple[Any, ...]  # values as bounds are; the shorter of two that begin alike is less


def rewrite_files(
    runtime: Runtime,
    table: TableInfo,
    sources: Sequence[LiveFile],
    at: int,
    txn_id: str,
    firsts: Mapping[int, int],
    *,
    cluster_by: Sequence[Column] = (),
) -> tuple[DataFile, ...]:
    """Write the rows that some files of a table show at a snapshot to new files.

    `firsts` has `row_ids.first_ids` of the sources. `cluster_by` are columns of the table that can
    be compared; with a primary key they are not looked at.
    """
    order = _Order.of(table, cluster_by)
    rows, size = sum(visible_rows(runtime, live, at) for live in sources), _size(sources)
    if not rows:
        return ()
    writer = FileWriter(
        storage=runtime.storage,
        settings=replace(runtime.settings, file_bytes=_file_bytes(runtime.settings, size)),
        table=table,
        txn_id=txn_id,
        op=Op.COMPACTION,
    )
    most = _rows_at_once(runtime.settings, table, sources, order)
    if most:
        ranges = [live.visible(runtime, at) for live in sources]
        merge = _Merge(runtime.storage, table, order, ranges, firsts, most)
        files = tuple(writer.write(merge.run()))
    else:
        scan = Scan(table=table, at=at, files=tuple(sources))
        files = _with_spark(runtime, writer, scan, firsts, order, size)
    written = sum(file.rows for file in files)
    if written != rows:  # not one may be lost
        raise CorruptError(f"{table.full_name}: of {rows} rows to rewrite, {written} were written")
    return files


def visible_rows(runtime: Runtime, live: LiveFile, at: int) -> int:
    """How many rows a file shows; the positions are only looked at where it takes that."""
    file = live.file
    if len(live.removed) or (file.deletes is not None and file.deletes.last > at):
        return live.visible(runtime, at).rows
    return file.rows - (file.deletes.count if file.deletes else 0)


def _size(sources: Iterable[LiveFile]) -> int:
    """About how many bytes the rows take, without what they no longer show."""
    sizes = 0
    for live in sources:
        file, gone = live.file, len(live.removed)
        gone += file.deletes.count if file.deletes else 0
        # Of a small file, the footer is the most.
        sizes += (file.size - file.footer) * max(0, file.rows - gone) // max(1, file.rows)
    return sizes


def _file_bytes(settings: Settings, size: int) -> int:
    """After how many bytes to begin the next file, so that the last one is as large as others."""
    if size <= _SLACK * settings.file_bytes:
        return int(_SLACK * settings.file_bytes)
    return -(-size // round(size / settings.file_bytes))


@dataclass(frozen=True, kw_only=True)
class _Order:
    """The order of the rows in the new files."""

    columns: tuple[Column, ...]
    is_sources: bool  # whether the rows of each source are in this order

    @staticmethod
    def of(table: TableInfo, cluster_by: Sequence[Column]) -> _Order:
        if table.key:
            return _Order(columns=table.key_columns, is_sources=True)
        # With the ids behind, the order is settled.
        return _Order(columns=(*cluster_by, ROW_ID_COLUMN), is_sources=not cluster_by)

    def places(self, table: TableInfo) -> list[int]:
        """Where its columns are in rows that have the table's columns and their ids."""
        held = (*table.columns, ROW_ID_COLUMN)
        return [held.index(column) for column in self.columns]


def _rows_at_once(
    settings: Settings, table: TableInfo, sources: Sequence[LiveFile], order: _Order
) -> int:
    """How many rows this process holds to rewrite the sources here; 0 if it is left to Spark."""
    rows, size = sum(live.file.rows for live in sources), sum(live.file.size for live in sources)
    fitting = settings.local_bytes * rows // max(1, size)
    # A row group of each source is held at least; all rows, where the sources are in no order.
    group = group_rows(settings, looked_up=table.is_looked_up)
    least = sum(min(live.file.rows, group) for live in sources) if order.is_sources else rows
    if rows > settings.rewrite_rows or least > min(settings.memory_rows, fitting):
        return 0
    return max(0, min(settings.local_rows, fitting))


class _Source:
    """A file that is read a share of its row groups at a time."""

    def __init__(
        self, rows: RowRange, layout: Layout, shares: list[list[int]], first: int | None
    ) -> None:
        self.rows, self.layout, self.shares = rows, layout, shares
        self.first = first  # the id of its first row; None: its rows have their ids with them
        self.read = 0  # shares

    @property
    def columns(self) -> tuple[Column, ...]:
        return () if self.first is not None else (ROW_ID_COLUMN,)

    def least(self, order: _Order) -> Key:
        """What no row of the next share comes before, by statistics: the empty key if unknown."""
        if not order.is_sources:
            return ()
        group, column = self.shares[self.read][0], order.columns[0]
        if column is ROW_ID_COLUMN and self.first is not None:
            return (self.first + self.layout.starts[group],)
        bounds = self.layout.known(group, column).bounds
        return () if bounds is None else (bounds[0],)

    def batch(self, storage: Storage, table: TableInfo, share: Sequence[int]) -> pa.Table:
        """The rows of a share, with their ids as the last column."""
        columns = (*table.columns, *self.columns)
        remote = storage.local is None
        parts = []
        with open_file(storage, self.rows.file, layout=self.layout, pre_buffer=remote) as opened:
            for batch in read_groups(opened, share, self.rows, columns):
                rows = batch.rows
                if self.first is not None:
                    rows = rows.append_column(_ROW_ID_FIELD, pa.array(self.first + batch.positions))
                parts.append(rows)
        return pa.concat_tables(parts)


class _Merge:
    """The rows of sorted files, in order."""

    def __init__(
        self,
        storage: Storage,
        table: TableInfo,
        order: _Order,
        ranges: Sequence[RowRange],
        firsts: Mapping[int, int],
        most: int,
    ) -> None:
        self._storage, self._table, self._order = storage, table, order
        self._most, self._firsts = most, firsts
        self._places = order.places(table)
        self._share = max(1, most // len(ranges))
        self._threads = pays(storage, sum(one.rows for one in ranges))
        opened = each(self._open, [one for one in ranges if one.rows], threads=self._threads)
        self._sources: list[_Source] = opened
        # Of each source that is not read through, what none of the rows to come is before.
        self._fences: dict[int, Key] = {
            number: source.least(order) for number, source in enumerate(opened)
        }

    def _open(self, rows: RowRange) -> _Source:
        with open_file(self._storage, rows.file) as opened:
            groups, layout = opened.groups(rows), opened.layout
        first = None if rows.file.op is Op.COMPACTION else self._firsts[rows.file.id]
        return _Source(rows, layout, list(layout.shares(groups, self._share)), first)

    def run(self) -> Iterator[pa.Table]:
        """The rows, with their ids as the last column."""
        held: list[pa.Table] = []
        while self._fences:
            count = sum(part.num_rows for part in held)
            # At least as many as there are: they are sorted anew each time.
            held += self._read(max(self._most - count, count))
            rows = pa.concat_tables(held)
            keys = [rows.column(place) for place in self._places]
            order = _sorted(keys)
            safe = self._safe(keys, order)
            yield from _taken(rows, order, 0, safe)
            held = list(_taken(rows, order, safe, rows.num_rows))

    def _read(self, room: int) -> list[pa.Table]:
        """Read about so many rows on, those that come first; move the fences."""
        waiting = [(key, number) for number, key in self._fences.items()]
        heapq.heapify(waiting)
        tasks: list[tuple[int, list[int]]] = []
        while waiting and room > 0:
            fence, number = heapq.heappop(waiting)
            source = self._sources[number]
            share = source.shares[source.read]
            tasks.append((number, share))
            room -= sum(source.rows.count(*source.layout.span(group)) for group in share)
            source.read += 1
            # Where nobody knows how far the share goes, the others come first.
            if source.read < len(source.shares) and source.least(self._order) > fence:
                heapq.heappush(waiting, (source.least(self._order), number))

        def batch(task: tuple[int, list[int]]) -> pa.Table:
            return self._sources[task[0]].batch(self._storage, self._table, task[1])

        parts = each(batch, tasks, threads=self._threads)
        for (number, _), rows in zip(tasks, parts, strict=True):
            source = self._sources[number]
            if source.read == len(source.shares):
                self._fences.pop(number, None)
            elif self._order.is_sources:
                keys = [rows.column(place) for place in self._places]
                last = _key_at(keys, rows.num_rows - 1)
                self._fences[number] = max(source.least(self._order), last)
        return parts

    def _safe(self, keys: Sequence[pa.ChunkedArray], order: Places | None) -> int:
        """How many of the rows come before all that is still to be read."""
        count = len(keys[0])
        if not self._fences:
            return count
        fence = min(self._fences.values())
        return bisect_right(
            range(count),
            fence,
            key=lambda place: _key_at(keys, place if order is None else int(order[place])),
        )


def _key_at(keys: Sequence[pa.ChunkedArray], place: int) -> Key:
    return tuple(stats.as_bounds(column.slice(place, 1))[0].as_py() for column in keys)


def _sorted(keys: Sequence[pa.ChunkedArray]) -> Places | None:
    """The order of rows by their keys; None if they are in order."""
    if len(keys) == 1 and pa.types.is_integer(keys[0].type) and not keys[0].null_count:
        numbers = keys[0].to_numpy()
        if np.all(numbers[:-1] <= numbers[1:]):
            return None
        # It makes use of what is in order already: the rows of each source are.
        return np.argsort(numbers, kind="stable")
    every = []
    for column in keys:
        # As for Spark: NULL comes first, and NaN last.
        every += [pc.is_nan(column)] if pa.types.is_floating(column.type) else []
        every.append(column)
    names = [str(number) for number in range(len(every))]
    order = pc.sort_indices(
        pa.table(every, names=names),
        sort_keys=[(name, "ascending", "at_start") for name in names],
    )
    return np.asarray(order.to_numpy(), np.int64)


def _taken(rows: pa.Table, order: Places | None, start: int, stop: int) -> Iterator[pa.Table]:
    """The rows from one place of an order to before another, in pieces."""
    if order is None:
        if start < stop:
            yield rows.slice(start, stop - start)
        return
    for first in range(start, stop, _PIECE_ROWS):
        yield rows.take(pa.array(order[first : min(first + _PIECE_ROWS, stop)]))


def _with_spark(
    runtime: Runtime,
    writer: FileWriter,
    scan: Scan,
    firsts: Mapping[int, int],
    order: _Order,
    size: int,
) -> tuple[DataFile, ...]:
    from pyspark.sql import functions as F

    count = max(1, round(size / runtime.settings.file_bytes))
    # A range is a file, whatever it has more than others: Spark guesses where they end.
    bound = replace(writer.settings, file_bytes=_RANGE * runtime.settings.file_bytes)
    writer = replace(writer, settings=bound)
    columns = (*scan.table.columns, ROW_ID_COLUMN)
    with_ids = replace(scan, table=replace(scan.table, columns=columns))
    frame = to_df(runtime, with_ids, places=True)
    plain = [live.file for live in scan.files if live.file.op is not Op.COMPACTION]
    selected = {column.name: F.col(types.quote(column.name)) for column in columns}
    if plain:
        facts = {
            FILE: pa.array([file.key for file in plain], pa.int64()),
            _FIRST: pa.array([firsts[file.id] for file in plain], pa.int64()),
        }
        starts = F.broadcast(local_frame(runtime, pa.table(facts)))
        frame = frame.join(starts, FILE, "left")
        selected[ROW_ID] = F.coalesce(selected[ROW_ID], F.col(_FIRST) + F.col(POS))
    # By numbers instead of names: mapInArrow takes a dot in a name for a field's.
    names = [f"c{number}" for number in range(len(columns))]
    rows = frame.select(*selected.values()).toDF(*names)
    keys = [names[place] for place in order.places(scan.table)]
    rows = rows.repartitionByRange(count, *keys).sortWithinPartitions(*keys)
    return tuple(run_over_rows(rows, writer.write))
