"""A load in this process: for input that is small, without Spark.

Always true: what is held is below the limits of the settings, whatever the files' sizes promised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.loading.convert import Mask
from tailrace.loading.job import LoadJob, Outcome, Teller
from tailrace.loading.options import Format, OnDuplicate, OnError, OnExisting
from tailrace.loading.parts import Part
from tailrace.loading.reading import PartReader
from tailrace.loading.repeats import existing, key_taken, runs
from tailrace.loading.report import write_report
from tailrace.loading.rows import Fitted, Lines, Rejected, as_json
from tailrace.store.rows import plain_rows

# Text takes about so many times the room of the same rows in Parquet, or compressed as a whole.
_TEXT = 4


def is_small(job: LoadJob) -> bool:
    """Whether the input is likely to fit; `load_locally` finds out."""
    settings = job.runtime.settings
    room, rows = 0.0, 0.0
    for one in job.files:
        if one.file.format is Format.PARQUET:
            room += one.file.size
            rows += sum(one.shape.group_rows)
        else:
            text = one.file.size * (_TEXT if one.file.codec else 1)
            room += text / _TEXT
            rows += text / one.shape.row_bytes
    return room <= settings.local_bytes and rows <= settings.local_rows


def load_locally(job: LoadJob) -> Outcome | None:
    """Load all files, or None: they are too large, and nothing has been written."""
    held = _read(job)
    if held is None:
        return None
    repeated = kept = 0
    if job.table.key:
        repeated = held.leave_out_repeated(job)
        kept = held.leave_out_existing(job)
    if held.rejected and job.options.on_error is OnError.ABORT:
        raise job.refusal(held.rejected)
    if job.report is not None:
        write_report(job.report, held.rejected)
    if held.rows.num_rows:
        table = job.txn.table(job.name)
        replaces = job.table.key and job.options.on_existing is OnExisting.REPLACE
        table.upsert(held.rows) if replaces else table.append(held.rows)
    return Outcome(
        loaded=held.rows.num_rows, rejected=len(held.rejected), repeated=repeated, kept=kept
    )


def _read(job: LoadJob) -> _Held | None:
    settings = job.runtime.settings
    parts = job.parts(divide=False)
    teller = Teller(job, parts)
    pieces: list[Fitted] = []
    owners: list[int] = []
    rejected: list[Rejected] = []
    rows = size = 0
    for part in parts:
        reader = PartReader(part)
        before = len(rejected)
        for fitted in reader:
            # A part here is a whole file, or some row groups: its first line is known.
            rejected += [one.placed(part.file.name, part.first_row + 1) for one in fitted.misfits]
            if rejected and job.options.on_error is OnError.ABORT:
                raise job.refusal(rejected)
            pieces.append(fitted)
            owners.append(part.number)
            rows += fitted.rows.num_rows
            size += fitted.rows.nbytes
            if rows + len(rejected) > settings.local_rows or size > settings.local_bytes:
                return None
        teller.read([part], rows=reader.end.rows, rejected=len(rejected) - before)
    teller.writing()
    empty = pa.schema([(column.name, column.type) for column in job.table.columns]).empty_table()
    sizes = [len(piece.lines) for piece in pieces]
    return _Held(
        rows=pa.concat_tables([empty, *(piece.rows for piece in pieces)]),
        owners=np.repeat(np.array(owners, np.int64), sizes),
        lines=np.concatenate([np.zeros(0, np.int64), *(piece.lines for piece in pieces)]),
        parts=parts,
        rejected=rejected,
    )


@dataclass(kw_only=True)
class _Held:
    """Rows in memory, and those that are left out."""

    rows: pa.Table
    owners: Lines  # the part of each row
    lines: Lines
    parts: list[Part]
    rejected: list[Rejected]

    def leave_out_repeated(self, job: LoadJob) -> int:
        """Keep one row of each key; returns how many went without being rejected."""
        found = runs(self._keys(job))
        number = np.arange(self.rows.num_rows)
        if job.options.on_duplicate is OnDuplicate.REJECT:
            for row in np.flatnonzero(found.first != number):
                first = self._place(int(found.first[row]))
                self._reject(job, int(row), f"stands in {first[0]}, line {first[1]} already")
        last = job.options.on_duplicate is OnDuplicate.LAST
        gone = self._keep((found.last if last else found.first) == number)
        return 0 if job.options.on_duplicate is OnDuplicate.REJECT else gone

    def leave_out_existing(self, job: LoadJob) -> int:
        """Keep the rows whose key the table has not, unless they replace; returns as above."""
        if job.options.on_existing is OnExisting.REPLACE:
            return 0
        there = existing(job.txn, job.table, self._keys(job))
        if job.options.on_existing is OnExisting.REJECT:
            for row in np.flatnonzero(there):
                self._reject(job, int(row), f"exists in {job.table.full_name} already")
        gone = self._keep(~there)
        return 0 if job.options.on_existing is OnExisting.REJECT else gone

    def _keys(self, job: LoadJob) -> pa.Table:
        return self.rows.select([column.name for column in job.table.key_columns])

    def _keep(self, wanted: Mask) -> int:
        gone = int(len(wanted) - wanted.sum())
        if gone:
            self.rows = self.rows.filter(pa.array(wanted))
            self.owners, self.lines = self.owners[wanted], self.lines[wanted]
        return gone

    def _place(self, row: int) -> tuple[str, int]:
        part = self.parts[self.owners[row]]
        return part.file.name, part.first_row + 1 + int(self.lines[row])

    def _reject(self, job: LoadJob, row: int, why: str) -> None:
        file, line = self._place(row)
        values = plain_rows(self.rows.slice(row, 1))[0]
        reason = key_taken(values, [column.name for column in job.table.key_columns], why)
        self.rejected.append(
            Rejected(
                file=file, line=line, column=None, value=None, reason=reason, text=as_json(values)
            )
        )
