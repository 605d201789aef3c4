"""The catalog rows of data and delete files, as DuckLake prescribes them, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.store import tables as t
from tailrace.store.files import DataFile
from tailrace.store.new_snapshot import NewSnapshot
from tailrace.store.scheduled_deletion import schedule

if TYPE_CHECKING:
    from tailrace.store.commit import PreparedTable
    from tailrace.store.deletes import WrittenDeletes


def write_files(new: NewSnapshot, prepared: PreparedTable, table_id: int, now: datetime) -> None:
    """Write the rows of a table's new files, and end those that lost their last row."""
    table_path = prepared.work.info.path
    ids = {file.key: new.new_file_id() for file in prepared.files}
    _insert_files(new, prepared.files, ids, table_id, table_path)
    _delete_files(new, now, prepared.deletes, ids, table_id, table_path)
    for ended in in_batches(file.id for file in prepared.ended):
        for table in (dl.data_file, dl.delete_file):
            new.end(table, table.c.data_file_id.in_(ended))
    if prepared.files:
        new.note("inserted_into_table", table_id)
    if prepared.deletes or prepared.ended:
        new.note("deleted_from_table", table_id)
    new.mark_changed(table_id)


def _insert_files(
    new: NewSnapshot, files: Sequence[DataFile], ids: dict[int, int], table_id: int, table_path: str
) -> None:
    if not files:
        return
    totals = dl.table_stats.c
    row_id = new.run(sa.select(totals.next_row_id).where(totals.table_id == table_id)).scalar_one()
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
    new.run(sa.insert(dl.data_file), data_rows)
    new.run(sa.insert(dl.file_column_stats), stats_rows)
    new.run(sa.insert(t.own_file), own_rows)
    new.run(
        sa.update(dl.table_stats)
        .where(totals.table_id == table_id)
        .values(
            next_row_id=row_id,
            record_count=totals.record_count + sum(f.rows for f in files),
            file_size_bytes=totals.file_size_bytes + sum(f.size for f in files),
        )
    )


def _delete_files(
    new: NewSnapshot,
    now: datetime,
    written: Sequence[tuple[DataFile, WrittenDeletes]],
    ids: dict[int, int],
    table_id: int,
    table_path: str,
) -> None:
    # A new file says all that the old one did, so that the old one's row goes. Its object
    # stays for a while: someone may be reading it.
    replaced = [file.deletes for file, _ in written if file.deletes is not None]
    for old in in_batches(deletes.id for deletes in replaced):
        new.run(sa.delete(dl.delete_file).where(dl.delete_file.c.delete_file_id.in_(old)))
    schedule(new.connection, [(deletes.id, deletes.path) for deletes in replaced], now)
    new.run(
        sa.insert(dl.delete_file),
        [
            {
                "delete_file_id": new.new_file_id(),
                "table_id": table_id,
                "begin_snapshot": new.number if deletes.begin is None else deletes.begin,
                "data_file_id": ids.get(file.key, file.id),
                "path": deletes.path.removeprefix(table_path),
                "path_is_relative": True,
                "format": "parquet",
                "delete_count": deletes.count,
                "file_size_bytes": deletes.size,
                "footer_size": deletes.footer,
                "partial_max": deletes.last,
            }
            for file, deletes in written
        ],
    )
