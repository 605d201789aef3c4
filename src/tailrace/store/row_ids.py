"""Row ids: what tells that two rows in different files are the same row.

A row gets its id when it is inserted: ids count up from the start of its file, which the catalog
has. Compaction moves rows to other files and keeps their ids, in a hidden column.

Always true: two rows of a table never have the same id, and ids grow with the snapshots in which
rows were inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.errors import NotFoundError
from tailrace.store.files import NONE, DataFile, Op, Positions, RowRange
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


class _WithIds:
    """A `Filter` of the rows with some ids, which are sorted."""

    looks_at = (ROW_ID_COLUMN,)

    def __init__(self, ids: RowIds) -> None:
        self._ids = ids

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        bounds = known(ROW_ID_COLUMN).bounds
        if bounds is None:
            return True
        at = int(np.searchsorted(self._ids, bounds[0]))
        return at < len(self._ids) and bool(self._ids[at] <= bounds[1])

    def found_in(self, rows: pa.Table) -> Flags:
        held = rows.column(0).to_numpy()
        near = np.minimum(np.searchsorted(self._ids, held), len(self._ids) - 1)
        flags: Flags = self._ids[near] == held
        return flags


class Placed(NamedTuple):
    """Rows of one file."""

    file: DataFile
    positions: Positions  # sorted
    ids: RowIds  # of the rows there


def find_ids(runtime: Runtime, files: Sequence[DataFile], ids: RowIds) -> list[Placed]:
    """Where rows with some ids, which are sorted, are in files of compactions."""
    if not len(ids):
        return []
    wanted = _WithIds(ids)
    placed = []
    for file in files:
        kept = runtime.kept_files.for_read(file.rows, [ROW_ID_COLUMN])
        batches = list(
            read(runtime.storage, RowRange.of(file), [ROW_ID_COLUMN], where=wanted, kept=kept)
        )
        if batches:
            positions = np.concatenate([batch.positions for batch in batches])
            found = np.concatenate([batch.rows.column(0).to_numpy() for batch in batches])
            placed.append(Placed(file, positions, found))
    return placed
