"""Commits beside compactions: rows that were deleted in one file, and are in another by now.

Always true: nobody loses a delete. A compaction takes over what was deleted while it wrote, and a
transaction that began before a compaction finds its rows where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sqlalchemy as sa

from tailrace.catalog.database import in_batches
from tailrace.errors import CorruptError
from tailrace.store import row_ids, table_files
from tailrace.store import tables as t
from tailrace.store.files import DataFile, Op, Positions, PositionsByFile, RowRange, union
from tailrace.store.row_ids import RowIds
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

Places = list[tuple[DataFile, Positions]]


class Moves:
    """Answers for one commit, on its connection."""

    def __init__(self, runtime: Runtime, connection: sa.Connection) -> None:
        self._runtime, self._connection = runtime, connection

    def find(
        self, table: TableInfo, gone: Mapping[DataFile, Positions], base: int, newest: int
    ) -> Places | None:
        """Where rows of files that have ended are now; None if one was deleted.

        The files were there at `base`, and `newest` is now.
        """
        if not self._all_moved(gone):
            return None
        ids = self._ids(gone)
        since = table_files.files_begun(self._connection, table, base, newest)
        # As of `newest`: one may have ended since, which the commit is going to find out.
        outputs = [
            file
            for file in since
            if file.op is Op.COMPACTION and (file.end is None or file.end > newest)
        ]
        placed = row_ids.find_ids(self._runtime, outputs, ids)
        if sum(len(one.positions) for one in placed) < len(ids):
            return None
        return [(one.file, one.positions) for one in placed]

    def carry(
        self, late: Mapping[DataFile, Positions], outputs: Sequence[DataFile]
    ) -> PositionsByFile:
        """Where the rows that were deleted meanwhile are in the files of a compaction."""
        some = {file: positions for file, positions in late.items() if len(positions)}
        ids = self._ids(some)
        placed = row_ids.find_ids(self._runtime, outputs, ids)
        if sum(len(one.positions) for one in placed) < len(ids):
            raise CorruptError("a compaction has lost rows: nothing was committed")
        return {one.file.key: one.positions for one in placed}

    def any_moved(self, files: Iterable[DataFile]) -> bool:
        """Whether rows of one of some files were moved by somebody."""
        return bool(self._moved(files))

    def _all_moved(self, files: Iterable[DataFile]) -> bool:
        ids = {file.id for file in files}
        return self._moved(files) == ids

    def _moved(self, files: Iterable[DataFile]) -> set[int]:
        c = t.own_file.c
        return {
            int(number)
            for some in in_batches(file.id for file in files)
            for number in self._connection.execute(
                sa.select(c.data_file_id).where(c.data_file_id.in_(some), c.rewritten.is_not(None))
            ).scalars()
        }

    def _ids(self, places: Mapping[DataFile, Positions]) -> RowIds:
        firsts = row_ids.first_ids(self._connection, places)
        parts = [
            row_ids.ids_at(self._runtime, file, positions, firsts)
            for file, positions in places.items()
        ]
        return union(parts)

    def first_id_of(self, files: Sequence[DataFile]) -> int:
        """The least id of the rows that were inserted with some files."""
        return min(row_ids.first_ids(self._connection, files).values())

    def from_id(
        self, places: PositionsByFile, files: Sequence[DataFile], first: int
    ) -> PositionsByFile:
        """Those rows that have this id or a greater one."""
        by_key = {file.key: file for file in files}
        left = {}
        for key, positions in places.items():
            file = by_key[key]
            if file.op is Op.COMPACTION:
                ids = row_ids.ids_at(self._runtime, file, positions, {})
                positions = positions[ids >= first]  # noqa: PLW2901
            if len(positions):
                left[key] = positions
        return left


def late_deletes(runtime: Runtime, before: DataFile, now: DataFile | None, base: int) -> Positions:
    """The rows that a file lost after `base`; all that it had left, if it is no longer there."""
    then = runtime.deletes.read(before.deletes).at(base)
    if now is None:
        return RowRange.of(before, without=then).positions()
    by_now = runtime.deletes.read(now.deletes).positions
    return np.setdiff1d(by_now, then, assume_unique=True)


def merged(places: Places) -> Places:
    """Places with each file once."""
    files = {file.key: file for file, _ in places}
    parts: dict[int, list[Positions]] = {}
    for file, positions in places:
        parts.setdefault(file.key, []).append(positions)
    return [(files[key], union(some)) for key, some in parts.items()]
