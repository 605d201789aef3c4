"""The files of one table, held in memory: what began and ended, for all snapshots from one on.

Always true: of the snapshots from `floor` on that are known, it says what `file_lookup` would read
from the catalog. What a purge has taken is below the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from threading import Lock

from tailrace.catalog.database import Database
from tailrace.store import file_lookup
from tailrace.store.file_lookup import Stats
from tailrace.store.files import ColumnStats, DataFile
from tailrace.store.schema import TableInfo

# Files that have ended are kept for readers of older snapshots, up to so many beyond the others.
_ENDED = 1000


class TableFiles:
    """The files of a table and the statistics that were asked for; used under its lock."""

    def __init__(self, changed: int) -> None:
        """`changed` is a snapshot after which the table has not changed, as far as is known."""
        self.lock = Lock()
        self.changed = changed  # set by who follows the catalog, without the lock
        self.covered = -1  # nothing is missing up to this snapshot
        self.floor = 0
        self._files: dict[int, DataFile] = {}
        self._live: list[DataFile] = []  # now
        self._latest = 0  # the last snapshot that moved something
        # None: there are none.
        self._stats: dict[int, dict[int, ColumnStats | None]] = {}

    @property
    def weight(self) -> int:
        """What it takes of memory, in files and statistics."""
        return 1 + len(self._files) + sum(map(len, self._stats.values()))

    def bring(self, database: Database, table: TableInfo, newest: int, floor: int) -> None:
        """Read what is missing; `newest` is a snapshot that the catalog has by now.

        From the catalog the first time: what is visible at `floor` or later.
        """
        if self.changed <= self.covered:
            return
        since = self.covered
        if since >= 0:
            oldest, moved = file_lookup.files_moved_after(database, table, since)
            # A file that ended since may have been purged already: then no row tells of it.
            since = since if oldest <= since else -1
        if since < 0:
            oldest, moved = file_lookup.files_left_after(database, table, floor)
            self._files.clear()
            self.floor = floor
        self._files |= {file.id: file for file in moved}
        self.floor = max(self.floor, oldest)
        self.covered = max(newest, self.covered)
        self._sort_out()

    def learn(self, snapshot: int, moved: Iterable[DataFile]) -> None:
        """Take over what a commit of this process did, if nothing was missing before.

        All changes up to the snapshot before are noted in `changed`.
        """
        for file in moved:
            if file.begin == snapshot:
                self._stats[file.id] = {one.column_id: one for one in file.stats}
        if self.changed <= self.covered < snapshot:
            self._files |= {file.id: replace(file, stats=()) for file in moved}
            self.covered = snapshot
            self._sort_out()

    def _sort_out(self) -> None:
        files = self._files.values()
        self._live = sorted((f for f in files if f.end is None), key=lambda file: file.id)
        self._latest = max((_moved(file) for file in files), default=0)
        if len(self._files) > 2 * len(self._live) + _ENDED:
            self._files = {file.id: file for file in self._live}
            self.floor = max(self.floor, self.covered, self._latest)
        if len(self._stats) > len(self._files):
            self._stats = {i: stats for i, stats in self._stats.items() if i in self._files}

    def at(self, at: int) -> list[DataFile]:
        """As `file_lookup.data_files`."""
        if at >= self._latest:
            return list(self._live)
        visible = [
            file
            for file in self._files.values()
            if file.begin <= at and (file.end is None or file.end > at)
        ]
        return sorted(
            (
                replace(file, deletes=None) if file.deletes and file.deletes.begin > at else file
                for file in visible
            ),
            key=lambda file: file.id,
        )

    def begun(self, since: int, until: int) -> list[DataFile]:
        """As `file_lookup.files_begun`."""
        if since >= self._latest:
            return []
        files = self._files.values()
        return _in_order([file for file in files if since < file.begin <= until])

    def with_deletes(self, since: int, until: int) -> list[DataFile]:
        """As `file_lookup.files_with_deletes`."""
        if since >= self._latest:
            return []

        def lost_rows(file: DataFile) -> bool:
            ended = file.end is not None and since < file.end <= until
            deletes = file.deletes
            return ended or (
                deletes is not None and deletes.begin <= until and deletes.last > since
            )

        files = self._files.values()
        return _in_order([file for file in files if file.begin <= until and lost_rows(file)])

    def stats(self, database: Database, column_ids: Sequence[int], at: int) -> Stats:
        """As `file_lookup.file_stats`; statistics never change, so that each is read once."""
        files = self.at(at)
        known = self._stats
        missing = [
            file.id
            for file in files
            if file.id not in known or any(c not in known[file.id] for c in column_ids)
        ]
        if missing:
            with database.read() as connection:
                read = file_lookup.stats_of_files(connection, missing, column_ids)
            for number in missing:
                there = read.get(number, {})
                known.setdefault(number, {}).update({c: there.get(c) for c in column_ids})
        stats: Stats = {}
        for file in files:
            of_file = {c: one for c in column_ids if (one := known[file.id][c]) is not None}
            if of_file:
                stats[file.id] = of_file
        return stats


def _moved(file: DataFile) -> int:
    """When something about a file changed last."""
    deleted = -1 if file.deletes is None else file.deletes.last
    return max(file.begin, -1 if file.end is None else file.end, deleted)


def _in_order(files: list[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda file: file.id)
