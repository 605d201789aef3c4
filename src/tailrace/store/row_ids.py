"""Row ids: what tells that two rows in different files are the same row.

A row gets its id when it is inserted: ids count up from the start of its file, which the catalog
has. Compaction moves rows to other files and keeps their ids, in a hidden column.

Always true: two rows of a table never have the same id, and ids grow with the snapshots in which
rows were inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.errors import NotFoundError
from tailrace.objects import Storage
from tailrace.store.files import NONE, DataFile, Op, Positions, RowRange, union
from tailrace.store.open_file import KeptFiles
from tailrace.store.reader import read, read_rows
from tailrace.store.runtime import Runtime
from tailrace.store.schema import ROW_ID_COLUMN, Column
from tailrace.store.stats import Flags, Known

RowIds = npt.NDArray[np.int64]


def first_ids(connection: sa.Connection, files: Iterable[DataFile]) -> dict[int, int]:
    """The id of the first row of each file that rows were inserted with, by the file's id."""
    c = dl.data_file.c
    numbers = {file.id for file in files if file.op is not Op.COMPACTION}
    firsts = {
        int(row.data_file_id): int(row.row_id_start)
        for some in in_batches(numbers)
        for row in connection.execute(
            sa.select(c.data_file_id, c.row_id_start).where(c.data_file_id.in_(some))
        )
    }
    if len(firsts) < len(numbers):
        raise NotFoundError("the oldest of these snapshots was purged just now")
    return firsts


def ids_at(
    runtime: Runtime, file: DataFile, positions: Positions, firsts: Mapping[int, int]
) -> RowIds:
    """The ids of the rows at some positions of a file; `firsts` has `first_ids`."""
    if file.op is not Op.COMPACTION:
        return firsts[file.id] + positions
    if not len(positions):
        return NONE
    kept = runtime.kept_files.for_read(file.rows, [ROW_ID_COLUMN])
    rows = read_rows(runtime.storage, RowRange.at(file, positions), [ROW_ID_COLUMN], kept=kept)
    ids: RowIds = rows.column(0).to_numpy()
    return ids


# A table of all ids between the least and the greatest takes at most so many times the ids' room.
_DENSE = 4


class WantedIds:
    """A `Filter` of the rows with some ids, which are sorted."""

    looks_at = (ROW_ID_COLUMN,)

    def __init__(self, ids: RowIds) -> None:
        self._ids = ids
        self._places: npt.NDArray[np.int64] | None = None
        # Looking for many ids in no order among many others takes ten times as long as a table.
        if len(ids) and ids[-1] - ids[0] < _DENSE * len(ids):
            self._places = np.full(ids[-1] - ids[0] + 1, -1, np.int64)
            self._places[ids - ids[0]] = np.arange(len(ids))

    def __len__(self) -> int:
        return len(self._ids)

    def places(self, held: RowIds) -> npt.NDArray[np.int64]:
        """Which of the wanted ids each of some ids is; -1 for none."""
        if self._places is None:
            near = np.minimum(np.searchsorted(self._ids, held), len(self._ids) - 1)
            return np.where(self._ids[near] == held, near, -1)
        first, last = self._ids[0], self._ids[-1]
        places = self._places[np.clip(held, first, last) - first]
        return np.where((held >= first) & (held <= last), places, -1)

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        bounds = known(ROW_ID_COLUMN).bounds
        if bounds is None:
            return True
        at = int(np.searchsorted(self._ids, bounds[0]))
        return at < len(self._ids) and bool(self._ids[at] <= bounds[1])

    def found_in(self, rows: pa.Table) -> Flags:
        flags: Flags = self.places(rows.column(0).to_numpy()) >= 0
        return flags


class _FromId:
    """A `Filter` of the rows with some id or a greater one."""

    looks_at = (ROW_ID_COLUMN,)

    def __init__(self, first: int) -> None:
        self._first = first

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        bounds = known(ROW_ID_COLUMN).bounds
        return bounds is None or bool(bounds[1] >= self._first)

    def found_in(self, rows: pa.Table) -> Flags:
        flags: Flags = rows.column(0).to_numpy() >= self._first
        return flags


class Placed(NamedTuple):
    """Rows of one file."""

    file: DataFile
    positions: Positions  # sorted
    ids: RowIds  # of the rows there


def find_ids(runtime: Runtime, files: Sequence[DataFile], ids: RowIds) -> list[Placed]:
    """Where rows with some ids, which are sorted, are in files of compactions."""
    wanted, placed = WantedIds(ids), []
    for file in files:
        kept = runtime.kept_files.for_read(file.rows, [ROW_ID_COLUMN])
        parts = list(find_in(runtime.storage, file, wanted, kept))
        if parts:
            positions, found = (np.concatenate(some) for some in zip(*parts, strict=True))
            placed.append(Placed(file, positions, found))
    return placed


def find_in(
    storage: Storage, file: DataFile, wanted: WantedIds, kept: KeptFiles | None = None
) -> Iterator[tuple[Positions, RowIds]]:
    """The same in one file, part by part: it may have any number of rows."""
    if not len(wanted):
        return
    for batch in read(storage, RowRange.of(file), [ROW_ID_COLUMN], where=wanted, kept=kept):
        yield batch.positions, batch.rows.column(0).to_numpy()


def find_from(
    storage: Storage, file: DataFile, first: int, kept: KeptFiles | None = None
) -> Positions:
    """Where the rows with some id or a greater one are in a file of a compaction."""
    wanted = _FromId(first)
    batches = read(storage, RowRange.of(file), [ROW_ID_COLUMN], where=wanted, kept=kept)
    return union(batch.positions for batch in batches)
