"""What a Spark task does in a load: it reads parts, writes files, and says what there was.

Always true: rows go from the parts straight into files of the lake, and not through Spark. What
comes back is small: the files' descriptions, counts, and the first rejected rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tailrace.loading.job import SHOWN
from tailrace.loading.options import OnError
from tailrace.loading.parts import Part, PartEnd
from tailrace.loading.reading import PartReader
from tailrace.loading.rows import Fitted, Misfit
from tailrace.loading.stop_sign import StopSign
from tailrace.store.files import DataFile
from tailrace.store.parquet import FileWriter
from tailrace.store.schema import OWN_PREFIX, Column, TableInfo

# Where a staged row came from.
PART = f"{OWN_PREFIX}part"
LINE = f"{OWN_PREFIX}line"

_HELD_MISFITS = 20_000  # before they are written
_MISFIT_COLUMNS = (
    (PART, pa.int64()),
    (LINE, pa.int64()),
    ("column", pa.string()),
    ("value", pa.string()),
    ("reason", pa.string()),
    ("text", pa.string()),
)


def staged(table: TableInfo) -> TableInfo:
    """A table's rows with the places that they came from, before keys are compared."""
    number = table.next_column_id
    places = tuple(
        Column(id=number + n, name=name, physical=name, type=pa.int64())
        for n, name in enumerate((PART, LINE))
    )
    return replace(table, columns=(*table.columns, *places), key=(), next_column_id=number + 2)


def misfits_of(table: TableInfo) -> TableInfo:
    """The rows of a table that are rejected, as a table beside it."""
    columns = tuple(
        Column(id=number, name=name, physical=name, type=kind)
        for number, (name, kind) in enumerate(_MISFIT_COLUMNS, 1)
    )
    return replace(table, columns=columns, key=())


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What a task did."""

    files: tuple[DataFile, ...]
    ends: dict[int, PartEnd]  # by part
    rejected: int
    first: tuple[Misfit, ...]  # rejected rows
    misfit_files: tuple[DataFile, ...]  # all of them, if they are to be reported
    stopped: bool = False  # at rejected rows, or because another task did


@dataclass(frozen=True, kw_only=True)
class LoadTask:
    """Sent to Spark's workers."""

    writer: FileWriter  # of the table's files, or of staged ones
    misfit_writer: FileWriter
    on_error: OnError
    with_places: bool
    stop: StopSign

    def run(self, parts: Sequence[Part]) -> TaskResult:
        """Read some parts and write their rows."""
        run = _Run(task=self)
        files = tuple(self.writer.write(run.rows(parts)))
        run.write_misfits()
        return TaskResult(
            files=files,
            ends=run.ends,
            rejected=run.rejected,
            first=tuple(run.first),
            misfit_files=tuple(run.misfit_files),
            stopped=run.stopped,
        )


@dataclass(kw_only=True)
class _Run:
    task: LoadTask
    ends: dict[int, PartEnd] = field(default_factory=dict)
    rejected: int = 0
    first: list[Misfit] = field(default_factory=list)
    held: list[Misfit] = field(default_factory=list)
    misfit_files: list[DataFile] = field(default_factory=list)
    stopped: bool = False

    def rows(self, parts: Sequence[Part]) -> Iterator[pa.Table]:
        for part in parts:
            reader = PartReader(part)
            for fitted in reader:
                self._note(fitted.misfits)
                aborts = self.rejected and self.task.on_error is OnError.ABORT
                if aborts:
                    self.task.stop.put_up()
                if aborts or self.task.stop.is_up():
                    self.ends[part.number] = reader.end
                    self.stopped = True
                    return
                yield _placed(fitted, part.number) if self.task.with_places else fitted.rows
            self.ends[part.number] = reader.end

    def _note(self, misfits: list[Misfit]) -> None:
        self.rejected += len(misfits)
        self.first += misfits[: SHOWN - len(self.first)] if len(self.first) < SHOWN else []
        if self.task.on_error is OnError.REPORT:
            self.held += misfits
            if len(self.held) >= _HELD_MISFITS:
                self.write_misfits()

    def write_misfits(self) -> None:
        if self.held:
            self.misfit_files += self.task.misfit_writer.write([misfit_rows(self.held)])
            self.held = []


def _placed(fitted: Fitted, part: int) -> pa.Table:
    owner = pa.array(np.full(len(fitted.lines), part, np.int64))
    return fitted.rows.append_column(PART, owner).append_column(LINE, pa.array(fitted.lines))


def misfit_rows(misfits: Sequence[Misfit]) -> pa.Table:
    """Rejected rows as rows."""
    given = [
        [getattr(one, name.removeprefix(OWN_PREFIX)) for one in misfits]
        for name, _ in _MISFIT_COLUMNS
    ]
    kinds = [kind for _, kind in _MISFIT_COLUMNS]
    arrays = [pa.array(values, kind) for values, kind in zip(given, kinds, strict=True)]
    return pa.table(arrays, names=[name for name, _ in _MISFIT_COLUMNS])


def misfits_in(rows: pa.Table) -> Iterator[Misfit]:
    """Rows as rejected rows."""
    for row in rows.select([name for name, _ in _MISFIT_COLUMNS]).to_pylist():
        yield Misfit(**{name.removeprefix(OWN_PREFIX): value for name, value in row.items()})
