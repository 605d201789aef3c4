"""Compacts some files of a table, as a task of maintenance does."""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.store import row_ids, stats
from tailrace.store.files import DataFile, Op
from tailrace.store.names import split_name
from tailrace.store.reader import read_rows
from tailrace.store.schema import HIDDEN, ROW_ID_COLUMN, TableInfo
from tailrace.store.write import new_object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tailrace


def compact(
    lake: tailrace.Lake,
    name: str,
    choose: Callable[[Sequence[DataFile]], Sequence[DataFile]] = lambda files: files,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    with lake.transaction() as txn:
        rewrite(txn, name, choose)
        meanwhile()


def rewrite(
    txn: Any, name: str, choose: Callable[[Sequence[DataFile]], Sequence[DataFile]]
) -> None:
    runtime = txn.runtime
    scan = txn.scan(*split_name(name))
    wanted = {file.key for file in choose([live.file for live in scan.files])}
    lives = [live for live in scan.files if live.file.key in wanted]
    if not lives:
        return
    with runtime.database.read() as connection:
        firsts = row_ids.first_ids(connection, [live.file for live in lives])
    parts = []
    for live in lives:
        visible = live.visible(runtime, scan.at)
        rows = read_rows(runtime.storage, visible, scan.table.columns)
        ids = row_ids.ids_at(runtime, live.file, visible.positions(), firsts)
        rows = rows.rename_columns([c.physical for c in scan.table.columns])
        parts.append(rows.append_column(ROW_ID_COLUMN.physical, pa.array(ids)))
    rows = pa.concat_tables(parts)
    if scan.table.key:
        rows = rows.sort_by([(c.physical, "ascending") for c in scan.table.key_columns])
    outputs = []
    half = max(1, rows.num_rows // 2 + 1)
    for start in range(0, rows.num_rows, half):
        outputs.append(_write(runtime, scan.table, txn.object_owner(), rows.slice(start, half)))
    txn.own_objects(file.path for file in outputs)
    txn.rewrite(name, [live.file for live in lives], outputs)


def _write(runtime: Any, table: TableInfo, owner: str, rows: pa.Table) -> DataFile:
    key = secrets.randbits(63)
    schema = pa.schema([c.field for c in (*table.columns, ROW_ID_COLUMN, *HIDDEN)])
    rows = rows.append_column("_file", pa.array(np.full(rows.num_rows, key)))
    rows = rows.append_column("_pos", pa.array(np.arange(rows.num_rows)))
    rows = pa.table([rows.column(f.name).cast(f.type) for f in schema], schema=schema)
    path = f"{table.path}{new_object_name(owner)}"
    footers: list[pq.FileMetaData] = []
    with runtime.storage.open_write(path) as sink:  # noqa: SIM117
        with pq.ParquetWriter(
            sink.native, schema, metadata_collector=footers, store_decimal_as_integer=True
        ) as writer:
            writer.write_table(rows)
    (footer,) = struct.unpack("<I", sink.tail[:4])
    return DataFile(
        key=key,
        path=path,
        rows=rows.num_rows,
        size=sink.size,
        footer=footer,
        op=Op.COMPACTION,
        stats=stats.of_file(footers[0], table.columns, {}),
    )
