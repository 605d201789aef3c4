"""Which files a table has at a snapshot, and their statistics: in the catalog, and held in memory.

Always true: as in `lookup`, any snapshot can be read at any time with the same statements; and of
the snapshots from `floor` on that are known, `TableFiles` says what they would read from the
catalog. What a purge has taken is below the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import Database, in_batches
from tailrace.catalog.part import Int
from tailrace.store import tables as t
from tailrace.store.files import ColumnStats, DataFile, DeleteFile, Op
from tailrace.store.lookup import OLDEST, visible
from tailrace.store.schema import TableInfo

# Built once: building a statement costs more than running it.
_AT = sa.bindparam("at", type_=Int)
_TABLE_ID = sa.bindparam("table_id", type_=Int)


_F, _D = dl.data_file, dl.delete_file
# What a `DataFile` is made of.
_COLUMNS = (
    _F.c.data_file_id,
    t.own_file.c.file_key,
    t.own_file.c.op,
    t.own_file.c.rewritten,
    _F.c.path,
    _F.c.record_count,
    _F.c.file_size_bytes,
    _F.c.footer_size,
    _F.c.begin_snapshot,
    _F.c.end_snapshot,
    _D.c.delete_file_id,
    _D.c.path.label("delete_path"),
    _D.c.begin_snapshot.label("delete_begin"),
    _D.c.partial_max.label("delete_max"),
    _D.c.delete_count,
    _D.c.file_size_bytes.label("delete_size"),
)


def _files(delete_condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(*_COLUMNS)
        .select_from(_F)
        .join(t.own_file, t.own_file.c.data_file_id == _F.c.data_file_id)
        .outerjoin(_D, sa.and_(_D.c.data_file_id == _F.c.data_file_id, delete_condition))
        .where(_F.c.table_id == _TABLE_ID)
    )


_FILES_AT = _files(visible(_D, _AT)).where(visible(_F, _AT)).order_by(_F.c.data_file_id)
# With the latest deletes, and with files that have ended.
_FILES_EVER = _files(sa.true())
_LAST_DELETE = sa.func.coalesce(_D.c.partial_max, _D.c.begin_snapshot)

# Which beginnings and ends of data and delete files are changes of a table's rows: those are not in
# which rows move to other files, and with them the deletes of others. Only rows that were inserted
# with a file get their ids from it.
CAME = _F.c.row_id_start.is_not(None)
WENT = ~sa.exists().where(
    t.own_file.c.data_file_id == _F.c.data_file_id, t.own_file.c.rewritten.is_not(None)
)
_OUTPUT = _F.alias()
IS_CARRIED = sa.exists().where(
    _OUTPUT.c.data_file_id == _D.c.data_file_id,
    _OUTPUT.c.row_id_start.is_(None),
    _OUTPUT.c.begin_snapshot == _D.c.begin_snapshot,
)
LOST = sa.or_(_D.c.begin_snapshot < _LAST_DELETE, ~IS_CARRIED)


def data_files(connection: sa.Connection, table: TableInfo, at: int) -> list[DataFile]:
    """The files of a table that are visible at a snapshot, with their deletes."""
    rows = connection.execute(_FILES_AT, {"table_id": table.id, "at": at})
    return [_data_file(row, table) for row in rows]


def files_by_id(
    connection: sa.Connection, table: TableInfo, ids: Sequence[int], at: int
) -> list[DataFile]:
    """Some of those files."""
    wanted = {"table_id": table.id, "at": at}
    return [
        _data_file(row, table)
        for some in in_batches(ids)
        for row in connection.execute(_FILES_AT.where(_F.c.data_file_id.in_(some)), wanted)
    ]


def files_begun(
    connection: sa.Connection, table: TableInfo, since: int, until: int
) -> list[DataFile]:
    """The files that began in (since, until], with their latest deletes, ended ones included."""
    query = _FILES_EVER.where(_F.c.begin_snapshot > since, _F.c.begin_snapshot <= until)
    rows = connection.execute(query, {"table_id": table.id})
    return _in_order(_data_file(row, table) for row in rows)


def files_with_deletes(
    connection: sa.Connection, table: TableInfo, since: int, until: int
) -> list[DataFile]:
    """The files that lost rows in (since, until], with their latest deletes."""
    deleted = sa.and_(_D.c.begin_snapshot <= until, since < _LAST_DELETE)
    ended = sa.and_(_F.c.end_snapshot > since, _F.c.end_snapshot <= until)
    query = _FILES_EVER.where(_F.c.begin_snapshot <= until, sa.or_(ended, deleted))
    rows = connection.execute(query, {"table_id": table.id})
    return _in_order(_data_file(row, table) for row in rows)


_SINCE = sa.bindparam("since", type_=Int)


def _with_oldest(*files: sa.Select[Any]) -> sa.CompoundSelect[Any]:
    """Those files, and a row more, without an id: the oldest snapshot in place of the key."""
    last = sa.select(*(OLDEST if c is t.own_file.c.file_key else sa.null() for c in _COLUMNS))
    return sa.union_all(*files, last)


# The files with rows at a snapshot or later: what ends after it.
_LEFT_AFTER = _with_oldest(
    _FILES_EVER.where(sa.or_(_F.c.end_snapshot.is_(None), _F.c.end_snapshot > _SINCE))
)
# The files that began, ended or lost rows after a snapshot. One query for each index, instead of
# one that reads all files of the table.
_MOVED_AFTER = _with_oldest(
    _FILES_EVER.where(_F.c.begin_snapshot > _SINCE),
    _FILES_EVER.where(_F.c.end_snapshot > _SINCE),
    _files(sa.true()).where(_D.c.table_id == _TABLE_ID, _LAST_DELETE > _SINCE),
)


def _read(
    database: Database, statement: sa.CompoundSelect[Any], table: TableInfo, since: int
) -> tuple[int, list[DataFile]]:
    """The oldest snapshot, and the files of one of these statements, with their latest deletes."""
    *rows, last = database.rows(statement, {"table_id": table.id, "since": since})
    return int(last.file_key), [_data_file(row, table) for row in rows]


def _in_order(files: Iterable[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda file: file.id)


def _data_file(row: sa.Row[Any], table: TableInfo) -> DataFile:
    deletes = None
    if row.delete_file_id is not None:
        deletes = DeleteFile(
            id=row.delete_file_id,
            path=f"{table.path}{row.delete_path}",
            data_path=f"{table.path}{row.path}",
            begin=row.delete_begin,
            last=row.delete_begin if row.delete_max is None else row.delete_max,
            count=row.delete_count,
            size=row.delete_size,
        )
    return DataFile(
        key=row.file_key,
        path=f"{table.path}{row.path}",
        rows=row.record_count,
        size=row.file_size_bytes,
        footer=row.footer_size,
        op=Op(row.op),
        id=row.data_file_id,
        begin=row.begin_snapshot,
        end=row.end_snapshot,
        rewritten=row.rewritten is not None,
        deletes=deletes,
    )


_STATS = sa.select(dl.file_column_stats).where(
    dl.file_column_stats.c.column_id.in_(sa.bindparam("columns", expanding=True))
)
_STATS_AT = _STATS.join(_F, _F.c.data_file_id == dl.file_column_stats.c.data_file_id).where(
    _F.c.table_id == _TABLE_ID, visible(_F, _AT)
)
_STATS_OF = _STATS.where(
    dl.file_column_stats.c.data_file_id.in_(sa.bindparam("files", expanding=True))
)
# By file id and column id.
Stats = dict[int, dict[int, ColumnStats]]


def file_stats(
    connection: sa.Connection, table: TableInfo, column_ids: Sequence[int], at: int
) -> Stats:
    """Statistics of some columns of the files visible at a snapshot."""
    wanted = {"table_id": table.id, "at": at, "columns": list(column_ids)}
    return _by_file(connection.execute(_STATS_AT, wanted))


def stats_of_files(
    connection: sa.Connection, ids: Iterable[int], column_ids: Sequence[int]
) -> Stats:
    """Statistics of some columns of some files."""
    columns = list(column_ids)
    stats: Stats = {}
    for some in in_batches(ids):
        rows = connection.execute(_STATS_OF, {"files": some, "columns": columns})
        stats |= _by_file(rows)
    return stats


def _by_file(rows: Iterable[sa.Row[Any]]) -> Stats:
    stats: Stats = {}
    for row in rows:
        stats.setdefault(row.data_file_id, {})[row.column_id] = ColumnStats(
            column_id=row.column_id,
            size=row.column_size_bytes,
            values=row.value_count,
            nulls=row.null_count,
            min=row.min_value,
            max=row.max_value,
            has_nan=None if row.contains_nan is None else bool(row.contains_nan),
        )
    return stats


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
            oldest, moved = _read(database, _MOVED_AFTER, table, since)
            # A file that ended since may have been purged already: then no row tells of it.
            since = since if oldest <= since else -1
        if since < 0:
            oldest, moved = _read(database, _LEFT_AFTER, table, floor)
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
        self._live = _in_order(file for file in files if file.end is None)
        self._latest = max((_moved(file) for file in files), default=0)
        if len(self._files) > 2 * len(self._live) + _ENDED:
            self._files = {file.id: file for file in self._live}
            self.floor = max(self.floor, self.covered, self._latest)
        if len(self._stats) > len(self._files):
            self._stats = {i: stats for i, stats in self._stats.items() if i in self._files}

    def at(self, at: int) -> list[DataFile]:
        """As `table_files.data_files`."""
        if at >= self._latest:
            return list(self._live)
        visible = [
            file
            for file in self._files.values()
            if file.begin <= at and (file.end is None or file.end > at)
        ]
        return _in_order(
            replace(file, deletes=None) if file.deletes and file.deletes.begin > at else file
            for file in visible
        )

    def begun(self, since: int, until: int) -> list[DataFile]:
        """As `table_files.files_begun`."""
        if since >= self._latest:
            return []
        files = self._files.values()
        return _in_order(file for file in files if since < file.begin <= until)

    def with_deletes(self, since: int, until: int) -> list[DataFile]:
        """As `table_files.files_with_deletes`."""
        if since >= self._latest:
            return []

        def lost_rows(file: DataFile) -> bool:
            ended = file.end is not None and since < file.end <= until
            deletes = file.deletes
            return ended or (
                deletes is not None and deletes.begin <= until and deletes.last > since
            )

        files = self._files.values()
        return _in_order(file for file in files if file.begin <= until and lost_rows(file))

    def stats(self, database: Database, column_ids: Sequence[int], at: int) -> Stats:
        """As `table_files.file_stats`; statistics never change, so that each is read once."""
        files = self.at(at)
        known = self._stats
        missing = [
            file.id
            for file in files
            if file.id not in known or any(c not in known[file.id] for c in column_ids)
        ]
        if missing:
            with database.read() as connection:
                read = stats_of_files(connection, missing, column_ids)
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
