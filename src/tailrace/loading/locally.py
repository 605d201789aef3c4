"""A load in this process, without Spark, for small input.

Always true: what is held in memory stays below the limits of the settings, whatever the sizes of
the files suggested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.loading.convert import Mask
from tailrace.loading.options import Format, OnDuplicate, OnError, OnExisting
from tailrace.loading.parts import PartReader
from tailrace.loading.plan import LoadPlan, Outcome
from tailrace.loading.rows import (
    Fitted,
    Lines,
    Misfit,
    PartStarts,
    Rejected,
    key_misfit,
    write_report,
)
from tailrace.store.files import RowRange
from tailrace.store.find_rows import find_keys, keys_of_rows
from tailrace.store.reader import read_rows
from tailrace.store.rows import plain_rows
from tailrace.store.scan import Cost
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction

# How much larger text is than the same rows in Parquet, or compressed.
_TEXT = 4


def is_small(plan: LoadPlan) -> bool:
    """Whether the input probably fits; `load_locally` finds out."""
    size, rows = 0.0, 0.0
    for one in plan.files:
        if one.file.format is Format.PARQUET:
            size += one.file.size
            rows += sum(one.shape.group_rows)
        else:
            text = one.file.size * (_TEXT if one.file.codec else 1)
            size += text / _TEXT
            rows += text / one.shape.row_bytes
    return plan.budget.covers(Cost(rows=math.ceil(rows), size=math.ceil(size)))


def load_locally(plan: LoadPlan) -> Outcome | None:
    """Load all files; None if they are too large, and then nothing has been written."""
    held = _read(plan)
    if held is None:
        return None
    repeated = kept = 0
    if plan.table.key:
        repeated = held.leave_out_repeated()
        kept = held.leave_out_existing()
    if held.misfits and plan.options.on_error is OnError.ABORT:
        raise plan.refusal(held.rejected())
    if plan.report is not None:
        write_report(plan.report, held.rejected())
    if held.rows.num_rows:
        table = plan.txn.table(plan.name)
        replaces = plan.table.key and plan.options.on_existing is OnExisting.REPLACE
        table.upsert(held.rows) if replaces else table.append(held.rows)
    return Outcome(
        rows=held.rows.num_rows, rejected=len(held.misfits), repeated=repeated, kept=kept
    )


def _read(plan: LoadPlan) -> _Held | None:
    parts = plan.parts(divide=False)
    # A part here is a whole file or some row groups: its first line is known before it is read.
    starts = PartStarts(
        files=tuple(part.file.name for part in parts),
        first_lines=tuple(part.first_row + 1 for part in parts),
    )
    progress = plan.progress(parts)
    blocks: list[Fitted] = []
    owners: list[int] = []
    misfits: list[Misfit] = []
    rows = size = 0
    for part in parts:
        reader = PartReader(part)
        before = len(misfits)
        for block in reader:
            misfits += block.misfits
            if misfits and plan.options.on_error is OnError.ABORT:
                raise plan.refusal(map(starts.of, misfits))
            blocks.append(block)
            owners.append(part.number)
            rows += block.rows.num_rows
            size += block.rows.nbytes
            if not plan.budget.covers(Cost(rows=rows + len(misfits), size=size)):
                return None
        progress.read([part], rows=reader.end.rows, rejected=len(misfits) - before)
    progress.writing()
    empty = pa.schema([(column.name, column.type) for column in plan.table.columns]).empty_table()
    sizes = [len(block.lines) for block in blocks]
    return _Held(
        plan=plan,
        starts=starts,
        rows=pa.concat_tables([empty, *(block.rows for block in blocks)]),
        parts=np.repeat(np.array(owners, np.int64), sizes),
        lines=np.concatenate([np.zeros(0, np.int64), *(block.lines for block in blocks)]),
        misfits=misfits,
    )


@dataclass(kw_only=True)
class _Held:
    """Rows in memory, and those that are rejected."""

    plan: LoadPlan
    starts: PartStarts
    rows: pa.Table
    parts: Lines  # the part of each row
    lines: Lines  # and its line there
    misfits: list[Misfit]

    def rejected(self) -> Iterator[Rejected]:
        """The rejected rows, as users see them."""
        return map(self.starts.of, self.misfits)

    def leave_out_repeated(self) -> int:
        """Keep one row of each key; returns how many were left out without being rejected."""
        choice = self.plan.options.on_duplicate
        same = runs(self._keys())
        chosen = same.last if choice is OnDuplicate.LAST else same.first
        others = chosen != np.arange(self.rows.num_rows)
        return self._leave_out(others, rejected=choice is OnDuplicate.REJECT, first=same.first)

    def leave_out_existing(self) -> int:
        """Keep the rows whose key is new to the table, unless they replace; returns the same."""
        table, choice = self.plan.table, self.plan.options.on_existing
        if choice is OnExisting.REPLACE:
            return 0
        there = existing(self.plan.txn, table, self._keys())
        return self._leave_out(there, rejected=choice is OnExisting.REJECT)

    def _keys(self) -> pa.Table:
        return self.rows.select([column.name for column in self.plan.table.key_columns])

    def _place(self, row: np.integer[Any]) -> tuple[int, int]:
        return int(self.parts[row]), int(self.lines[row])

    def _leave_out(self, gone: Mask, *, rejected: bool, first: Lines | None = None) -> int:
        """Take rows out: rejected, or else counted; `first` has the first row of each one's key."""
        if not gone.any():
            return 0
        if rejected:
            numbers = np.flatnonzero(gone)
            for row, values in zip(numbers, plain_rows(self.rows.take(numbers)), strict=True):
                part, line = self._place(row)
                earlier = None if first is None else self.starts.text(*self._place(first[row]))
                self.misfits.append(
                    key_misfit(self.plan.table, values, part=part, line=line, first=earlier)
                )
        self.rows = self.rows.filter(pa.array(~gone))
        self.parts, self.lines = self.parts[~gone], self.lines[~gone]
        return 0 if rejected else int(gone.sum())


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


def existing(txn: Transaction, table: TableInfo, keys: pa.Table) -> Mask:
    """Which keys, in the order of the key's columns, the table has already."""
    scan = txn.scan(table.schema, table.name)
    if not scan.files or not keys.num_rows:
        return np.zeros(keys.num_rows, bool)
    runtime, columns = txn.runtime, table.key_columns
    known = runtime.mirror.file_stats(table, table.key, txn.base)
    named = keys.rename_columns([column.physical for column in columns])
    wanted = keys_of_rows(runtime, table, named)
    places = find_keys(runtime, wanted, scan, known)
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
