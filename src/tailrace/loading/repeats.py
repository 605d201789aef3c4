"""Rows whose key the input has twice or the table already has, found in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.loading.convert import Mask
from tailrace.loading.rows import Lines, Misfit, PartStarts, as_json, shown
from tailrace.store import keys as key_search
from tailrace.store.reader.batches import read_rows
from tailrace.store.reader.row_range import RowRange
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Runs:
    """For each row, the first and the last row that have its key."""

    first: Lines
    last: Lines


def runs(keys: pa.Table) -> Runs:
    """The rows that have the same key."""
    rows = _numbered(keys)
    names = rows.column_names[:-1]
    groups = rows.group_by(names).aggregate([("row", "min"), ("row", "max")])
    both = rows.join(groups, names).sort_by("row")
    return Runs(first=both["row_min"].to_numpy(), last=both["row_max"].to_numpy())


def _numbered(keys: pa.Table) -> pa.Table:
    # Columns by numbers instead of names: Arrow takes a name that begins with a dot for a path.
    names = [str(number) for number in range(keys.num_columns)]
    return keys.rename_columns(names).append_column("row", pa.array(np.arange(keys.num_rows)))


def key_misfit(table: TableInfo, row: dict[str, Any], *, part: int, line: int, why: str) -> Misfit:
    """A row that could be read, and is rejected because of its key."""
    key = {column.name: row[column.name] for column in table.key_columns}
    return Misfit(
        part=part, line=line, reason=f"the key {shown(key)} {why} already", text=as_json(row)
    )


def stands_in(starts: PartStarts, part: int, line: int) -> str:
    """Why: an earlier row has the key."""
    return f"stands in {starts.text(part, line)}"


def exists_in(table: TableInfo) -> str:
    """Why: the table has it."""
    return f"exists in {table.full_name}"


def existing(txn: Transaction, table: TableInfo, keys: pa.Table) -> Mask:
    """Which keys, in the order of the key's columns, the table has already."""
    scan = txn.scan(table.schema, table.name)
    if not scan.files or not keys.num_rows:
        return np.zeros(keys.num_rows, bool)
    runtime, columns = txn.runtime, table.key_columns
    known = runtime.mirror.file_stats(table, table.key, txn.base)
    named = keys.rename_columns([column.physical for column in columns])
    wanted = key_search.keys_of_rows(runtime, table, named)
    places = key_search.find_keys(runtime, wanted, scan, known)
    by_key = {live.file.key: live.file for live in scan.files}
    parts = [
        read_rows(runtime.storage, RowRange.at(by_key[file], positions), columns)
        for file, positions in places.items()
    ]
    taken = np.zeros(keys.num_rows, bool)
    if parts:
        rows, old = _numbered(keys), _numbered(pa.concat_tables(parts)).drop_columns("row")
        taken[rows.join(old, old.column_names, join_type="left semi")["row"].to_numpy()] = True
    return taken
