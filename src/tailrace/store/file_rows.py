"""The catalog rows of data and delete files, as DuckLake prescribes them, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.columns import Int
from tailrace.catalog.database import in_batches
from tailrace.store import tables as t
from tailrace.store.files import DataFile, DeleteFile
from tailrace.store.new_snapshot import NewSnapshot
from tailrace.store.scheduled_deletion import SCHEDULE, scheduled

if TYPE_CHECKING:
    from tailrace.store.commit import PreparedTable
    from tailrace.store.deletes import WrittenDeletes


# Built once: building a statement costs more than running it.
_DATA_FILES, _OWN_FILES = sa.insert(dl.data_file), sa.insert(t.own_file)
_STATS, _DELETE_FILES = sa.insert(dl.file_column_stats), sa.insert(dl.delete_file)
_REPLACED = sa.delete(dl.delete_file).where(
    dl.delete_file.c.delete_file_id.in_(sa.bindparam("ids", expanding=True))
)
_END = {
    table: sa.update(table)
    .where(
        table.c.data_file_id.in_(sa.bindparam("ids", expanding=True)),
        table.c.end_snapshot.is_(None),
    )
    .values(end_snapshot=sa.bindparam("snapshot", type_=Int))
    for table in (dl.data_file, dl.delete_file)
}
_TOTALS = dl.table_stats.c
_ROWS, _BYTES = sa.bindparam("rows", type_=Int), sa.bindparam("bytes", type_=Int)
_ADD_TO_TOTALS = (
    sa.update(dl.table_stats)
    .where(_TOTALS.table_id == sa.bindparam("number", type_=Int))
    .values(
        next_row_id=_TOTALS.next_row_id + _ROWS,
        record_count=_TOTALS.record_count + _ROWS,
        file_size_bytes=_TOTALS.file_size_bytes + _BYTES,
    )
    .returning(_TOTALS.next_row_id)
)


def write_files(
    new: NewSnapshot, prepared: PreparedTable, table_id: int, now: datetime
) -> list[DataFile]:
    """Write the rows of a table's new files, and end those that lost their last row.

    Returns the files that it moved, as they are in the catalog from now on.
    """
    table_path = prepared.work.info.path
    ids = {file.key: new.new_file_id() for file in prepared.files}
    _insert_files(new, prepared.files, ids, table_id, table_path)
    deletes = _delete_files(new, now, prepared.deletes, ids, table_id, table_path)
    with_deletes = [file for file in prepared.ended if file.deletes is not None]
    for table, ended in ((dl.data_file, prepared.ended), (dl.delete_file, with_deletes)):
        for some in in_batches(file.id for file in ended):
            new.later(_END[table], {"ids": some, "snapshot": new.number})
    if prepared.files:
        new.note("inserted_into_table", table_id)
    if prepared.deletes or prepared.ended:
        new.note("deleted_from_table", table_id)
    new.mark_changed(table_id)
    begun = [replace(file, id=ids[file.key], begin=new.number) for file in prepared.files]
    lost_rows = [file for file, _ in prepared.deletes if file.key not in ids]
    return [
        *(replace(file, deletes=deletes.get(file.key)) for file in begun),
        *(replace(file, deletes=deletes[file.key]) for file in lost_rows),
        *(replace(file, end=new.number) for file in prepared.ended),
    ]


def _insert_files(
    new: NewSnapshot, files: Sequence[DataFile], ids: dict[int, int], table_id: int, table_path: str
) -> None:
    if not files:
        return
    rows = sum(file.rows for file in files)
    more = {"number": table_id, "rows": rows, "bytes": sum(file.size for file in files)}
    row_id = new.run(_ADD_TO_TOTALS, more).scalar_one() - rows
    data_rows, stats_rows, own_rows = [], [], []
    for file in files:
        number = ids[file.key]
        data_rows.append(
            {
                "data_file_id": number,
                "table_id": table_id,
                "begin_snapshot": new.number,
                "path": file.path.removeprefix(table_path),
                "path_is_relative": True,
                "file_format": "parquet",
                "record_count": file.rows,
                "file_size_bytes": file.size,
                "footer_size": file.footer,
                "row_id_start": row_id,
            }
        )
        row_id += file.rows
        own_rows.append({"data_file_id": number, "file_key": file.key, "op": str(file.op)})
        stats_rows += [
            {
                "data_file_id": number,
                "table_id": table_id,
                "column_id": s.column_id,
                "column_size_bytes": s.size,
                "value_count": s.values,
                "null_count": s.nulls,
                "min_value": s.min,
                "max_value": s.max,
                "contains_nan": s.has_nan,
            }
            for s in file.stats
        ]
    new.later(_DATA_FILES, data_rows)
    new.later(_STATS, stats_rows)
    new.later(_OWN_FILES, own_rows)


def _delete_files(
    new: NewSnapshot,
    now: datetime,
    written: Sequence[tuple[DataFile, WrittenDeletes]],
    ids: dict[int, int],
    table_id: int,
    table_path: str,
) -> dict[int, DeleteFile]:
    """Returns the new delete files, by the keys of the files that they are of."""
    # A new file says all that the old one did, so that the old one's row goes. Its object
    # stays for a while: someone may be reading it.
    replaced = [file.deletes for file, _ in written if file.deletes is not None]
    for old in in_batches(deletes.id for deletes in replaced):
        new.later(_REPLACED, {"ids": old})
    new.later(SCHEDULE, scheduled([(deletes.id, deletes.path) for deletes in replaced], now))
    made, rows = {}, []
    for file, deletes in written:
        number = new.new_file_id()
        begin = new.number if deletes.begin is None else deletes.begin
        rows.append(
            {
                "delete_file_id": number,
                "table_id": table_id,
                "begin_snapshot": begin,
                "data_file_id": ids.get(file.key, file.id),
                "path": deletes.path.removeprefix(table_path),
                "path_is_relative": True,
                "format": "parquet",
                "delete_count": deletes.count,
                "file_size_bytes": deletes.size,
                "footer_size": deletes.footer,
                "partial_max": deletes.last,
            }
        )
        made[file.key] = DeleteFile(
            id=number,
            path=deletes.path,
            data_path=file.path,
            begin=begin,
            last=begin if deletes.last is None else deletes.last,
            count=deletes.count,
            size=deletes.size,
        )
    new.later(_DELETE_FILES, rows)
    return made
