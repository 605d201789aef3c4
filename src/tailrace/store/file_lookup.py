"""Which files a table has at a snapshot, and their statistics, read from the catalog.

Always true: as in `lookup`, any snapshot can be read at any time with the same statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.columns import Int
from tailrace.catalog.database import Database, in_batches
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
    return _in_order(connection.execute(query, {"table_id": table.id}), table)


def files_with_deletes(
    connection: sa.Connection, table: TableInfo, since: int, until: int
) -> list[DataFile]:
    """The files that lost rows in (since, until], with their latest deletes."""
    deleted = sa.and_(_D.c.begin_snapshot <= until, since < _LAST_DELETE)
    ended = sa.and_(_F.c.end_snapshot > since, _F.c.end_snapshot <= until)
    query = _FILES_EVER.where(_F.c.begin_snapshot <= until, sa.or_(ended, deleted))
    return _in_order(connection.execute(query, {"table_id": table.id}), table)


_SINCE = sa.bindparam("since", type_=Int)


def _with_oldest(*files: sa.Select[Any]) -> sa.CompoundSelect[Any]:
    """Those files, and a row more, without an id: the oldest snapshot in place of the key."""
    last = sa.select(*(OLDEST if c is t.own_file.c.file_key else sa.null() for c in _COLUMNS))
    return sa.union_all(*files, last)


# What ends after a snapshot is all that is visible at it or later.
_LEFT_AFTER = _with_oldest(
    _FILES_EVER.where(sa.or_(_F.c.end_snapshot.is_(None), _F.c.end_snapshot > _SINCE))
)
# One query for each index, instead of one that reads all files of the table.
_MOVED_AFTER = _with_oldest(
    _FILES_EVER.where(_F.c.begin_snapshot > _SINCE),
    _FILES_EVER.where(_F.c.end_snapshot > _SINCE),
    _files(sa.true()).where(_D.c.table_id == _TABLE_ID, _LAST_DELETE > _SINCE),
)


def files_left_after(
    database: Database, table: TableInfo, since: int
) -> tuple[int, list[DataFile]]:
    """The oldest snapshot, and the files with rows at `since` or later, with latest deletes."""
    return _read(database, _LEFT_AFTER, table, since)


def files_moved_after(
    database: Database, table: TableInfo, since: int
) -> tuple[int, list[DataFile]]:
    """The oldest snapshot, and the files that began, ended or lost rows after `since`."""
    return _read(database, _MOVED_AFTER, table, since)


def _read(
    database: Database, statement: sa.CompoundSelect[Any], table: TableInfo, since: int
) -> tuple[int, list[DataFile]]:
    *rows, last = database.rows(statement, {"table_id": table.id, "since": since})
    return int(last.file_key), [_data_file(row, table) for row in rows]


def _in_order(rows: Iterable[sa.Row[Any]], table: TableInfo) -> list[DataFile]:
    return sorted((_data_file(row, table) for row in rows), key=lambda file: file.id)


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
