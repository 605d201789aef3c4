"""Rows whose key the input has twice, or the table has already: found in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.loading.convert import Mask
from tailrace.loading.rows import Lines, shown
from tailrace.store import keys as key_search
from tailrace.store import lookup
from tailrace.store.scan import read_file
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Runs:
    """For each row, the first and the last row that have its key."""

    first: Lines
    last: Lines


def runs(keys: pa.Table) -> Runs:
    """The rows that have the same key."""
    count = keys.num_rows
    if count == 0:
        return Runs(first=np.zeros(0, np.int64), last=np.zeros(0, np.int64))
    # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
    names = [str(number) for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(np.arange(count)))
    order = pc.sort_indices(numbered, [(name, "ascending") for name in (*names, "row")])
    same = np.ones(count - 1, bool)
    for array in numbered.select(names).take(order).columns:
        same &= pc.equal(array.slice(1), array.slice(0, count - 1)).to_numpy()
    begins = np.concatenate([[True], ~same])
    places = order.to_numpy().astype(np.int64)
    run = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    tails = np.append(heads[1:], count) - 1
    first, last = np.empty(count, np.int64), np.empty(count, np.int64)
    first[places], last[places] = places[heads[run]], places[tails[run]]
    return Runs(first=first, last=last)


def key_taken(row: Mapping[str, Any], key: Iterable[str], why: str) -> str:
    """Why a row is rejected that could be read."""
    return f"the key {shown({name: row[name] for name in key})} {why}"


def existing(txn: Transaction, table: TableInfo, keys: pa.Table) -> Mask:
    """Which keys, in the order of the key's columns, the table has already."""
    scan = txn.scan(table.schema, table.name)
    if not scan.files or not keys.num_rows:
        return np.zeros(keys.num_rows, bool)
    runtime, columns = txn.runtime, table.key_columns
    with runtime.database.read() as connection:
        known = lookup.file_stats(connection, table, table.key, txn.base)
    named = keys.rename_columns([column.physical for column in columns])
    wanted = key_search.keys_of_rows(runtime, table, named)
    places = key_search.find_keys(runtime, wanted, scan, known)
    by_key = {live.file.key: live.file for live in scan.files}
    parts = [
        read_file(runtime.storage, by_key[file], columns, only=positions)
        for file, positions in places.items()
    ]
    if not parts:
        return np.zeros(keys.num_rows, bool)
    found = pa.concat_tables(parts)
    both = pa.concat_tables([pa.table(t.columns, names=named.column_names) for t in (found, keys)])
    # A key of the input whose first row is one of the table's.
    mask: Mask = runs(both).first[found.num_rows :] < found.num_rows
    return mask
