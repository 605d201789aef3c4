"""Which files a table has at a snapshot, and their statistics, read from the catalog.

Always true: as in `lookup`, any snapshot can be read at any time with the same statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.columns import Int
from tailrace.catalog.database import in_batches
from tailrace.store import tables as t
from tailrace.store.files import ColumnStats, DataFile, DeleteFile, Op
from tailrace.store.lookup import visible
from tailrace.store.schema import TableInfo

# Built once: building a statement costs more than running it.
_AT = sa.bindparam("at", type_=Int)
_TABLE_ID = sa.bindparam("table_id", type_=Int)


def _files(delete_condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    d = dl.delete_file
    return (
        sa.select(
            dl.data_file,
            t.own_file.c.file_key,
            t.own_file.c.op,
            d.c.delete_file_id,
            d.c.path.label("delete_path"),
            d.c.begin_snapshot.label("delete_begin"),
            d.c.partial_max.label("delete_max"),
            d.c.delete_count,
            d.c.file_size_bytes.label("delete_size"),
        )
        .join(t.own_file, t.own_file.c.data_file_id == dl.data_file.c.data_file_id)
        .outerjoin(d, sa.and_(d.c.data_file_id == dl.data_file.c.data_file_id, delete_condition))
        .where(dl.data_file.c.table_id == _TABLE_ID)
        .order_by(dl.data_file.c.data_file_id)
    )


_FILES_AT = _files(visible(dl.delete_file, _AT)).where(visible(dl.data_file, _AT))
# With the latest deletes, and with files that have ended.
_FILES_EVER = _files(sa.true())


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
        for row in connection.execute(
            _FILES_AT.where(dl.data_file.c.data_file_id.in_(some)), wanted
        )
    ]


def files_begun(
    connection: sa.Connection, table: TableInfo, since: int, until: int
) -> list[DataFile]:
    """The files that began in (since, until], with their latest deletes, ended ones included."""
    query = _FILES_EVER.where(
        dl.data_file.c.begin_snapshot > since, dl.data_file.c.begin_snapshot <= until
    )
    return [_data_file(row, table) for row in connection.execute(query, {"table_id": table.id})]


def files_with_deletes(
    connection: sa.Connection, table: TableInfo, since: int, until: int
) -> list[DataFile]:
    """The files that lost rows in (since, until], with their latest deletes."""
    f, d = dl.data_file, dl.delete_file
    deleted = sa.and_(
        d.c.begin_snapshot <= until, sa.func.coalesce(d.c.partial_max, d.c.begin_snapshot) > since
    )
    ended = sa.and_(f.c.end_snapshot > since, f.c.end_snapshot <= until)
    query = _FILES_EVER.where(f.c.begin_snapshot <= until, sa.or_(ended, deleted))
    return [_data_file(row, table) for row in connection.execute(query, {"table_id": table.id})]


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


_STATS = (
    sa.select(dl.file_column_stats)
    .join(dl.data_file, dl.data_file.c.data_file_id == dl.file_column_stats.c.data_file_id)
    .where(
        dl.data_file.c.table_id == _TABLE_ID,
        visible(dl.data_file, _AT),
        dl.file_column_stats.c.column_id.in_(sa.bindparam("columns", expanding=True)),
    )
)


def file_stats(
    connection: sa.Connection, table: TableInfo, column_ids: Sequence[int], at: int
) -> dict[int, dict[int, ColumnStats]]:
    """Statistics of some columns, by file id and column id, of the files visible at a snapshot."""
    wanted = {"table_id": table.id, "at": at, "columns": list(column_ids)}
    stats: dict[int, dict[int, ColumnStats]] = {}
    for row in connection.execute(_STATS, wanted):
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
