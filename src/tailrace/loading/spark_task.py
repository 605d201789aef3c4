"""A Spark task of a load: it reads parts and writes files.

Always true: rows go from the parts straight into files of the lake, not through Spark. What comes
back is small: descriptions of the files, counts, and a few rejected rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from tailrace.errors import UnavailableError
from tailrace.loading.options import OnError
from tailrace.loading.parts import Part, PartEnd, PartReader
from tailrace.loading.plan import SHOWN
from tailrace.loading.rows import Fitted, Misfit
from tailrace.objects import Storage
from tailrace.store.files import DataFile
from tailrace.store.names import OWN_PREFIX
from tailrace.store.schema import Column, TableInfo
from tailrace.store.write import FileWriter

# Columns of staged rows: where each row came from.
PART = f"{OWN_PREFIX}part"
LINE = f"{OWN_PREFIX}line"

_HELD_MISFITS = 20_000  # before they are written
_LOOK_EVERY = 1.0  # seconds between two looks for the stop sign
_MISFITS = pa.schema(
    dict.fromkeys(("part", "line"), pa.int64())
    | dict.fromkeys(("column", "value", "reason", "text"), pa.string())
)


def staged(table: TableInfo) -> TableInfo:
    """The table of staged rows, which still know where they came from."""
    number = table.next_column_id
    places = tuple(
        Column(id=number + n, name=name, physical=name, type=pa.int64())
        for n, name in enumerate((PART, LINE))
    )
    return replace(table, columns=(*table.columns, *places), key=(), next_column_id=number + 2)


def misfits_of(table: TableInfo) -> TableInfo:
    """The table of rows that are rejected."""
    columns = tuple(
        Column(id=number, name=field.name, physical=field.name, type=field.type)
        for number, field in enumerate(_MISFITS, 1)
    )
    return replace(table, columns=columns, key=())


def misfit_rows(misfits: Iterable[Misfit]) -> pa.Table:
    """Rejected rows as rows."""
    return pa.Table.from_pylist([asdict(misfit) for misfit in misfits], _MISFITS)


def misfits_in(rows: pa.Table) -> Iterator[Misfit]:
    """Rows as rejected rows."""
    return (Misfit(**row) for row in rows.select(_MISFITS.names).to_pylist())


@dataclass(kw_only=True)
class TaskResult:
    """What a task did; filled in as it goes."""

    files: list[DataFile] = field(default_factory=list)
    ends: dict[int, PartEnd] = field(default_factory=dict)  # by part
    rejected: int = 0
    first: list[Misfit] = field(default_factory=list)  # a few of the rejected rows
    misfit_files: list[DataFile] = field(default_factory=list)  # all, if they are to be reported
    stopped: bool = False  # at rejected rows, or because another task did


@dataclass(frozen=True, kw_only=True)
class LoadTask:
    """Sent to Spark's workers."""

    writer: FileWriter  # of the table's files, or of staged ones
    misfit_writer: FileWriter
    on_error: OnError
    with_origin: bool
    stop: StopSign

    def run(self, parts: Sequence[Part]) -> TaskResult:
        """Read some parts and write their rows."""
        result = TaskResult()
        result.files += self.writer.write(self._rows(parts, result))
        return result

    def _rows(self, parts: Sequence[Part], result: TaskResult) -> Iterator[pa.Table]:
        misfits: list[Misfit] = []
        for part in parts:
            reader = PartReader(part)
            for fitted in reader:
                result.rejected += len(fitted.misfits)
                result.first += fitted.misfits[: SHOWN - len(result.first)]
                misfits += fitted.misfits if self.on_error is OnError.REPORT else []
                if len(misfits) >= _HELD_MISFITS:
                    result.misfit_files += self.misfit_writer.write([misfit_rows(misfits)])
                    misfits = []
                aborts = result.rejected and self.on_error is OnError.ABORT
                if aborts:
                    self.stop.put_up()
                if aborts or self.stop.is_up():
                    result.ends[part.number] = reader.end
                    result.stopped = True
                    return
                yield _with_origin(fitted, part.number) if self.with_origin else fitted.rows
            result.ends[part.number] = reader.end
        if misfits:
            result.misfit_files += self.misfit_writer.write([misfit_rows(misfits)])


def _with_origin(fitted: Fitted, part: int) -> pa.Table:
    owner = pa.array(np.full(len(fitted.lines), part, np.int64))
    return fitted.rows.append_column(PART, owner).append_column(LINE, pa.array(fitted.lines))


@dataclass(kw_only=True)
class StopSign:
    """Put up by the driver or a task: nobody needs the results of the others any more.

    The sign is an object in the lake's storage, which all tasks reach. Spark's own cancelling can
    hit a task while it is being launched, and then leaves a core blocked.
    """

    storage: Storage
    path: str  # a name that nothing else uses
    _looked: float = field(default=0.0, compare=False)

    def put_up(self) -> None:
        """Tell all tasks to end soon. If that fails, they run to their normal end."""
        with suppress(UnavailableError), self.storage.open_write(self.path) as sink:
            sink.native.write(b"stop")

    def is_up(self) -> bool:
        """Whether to end; looks at most once a second."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return False
        self._looked = time.monotonic()
        if self.storage.local is not None:
            return (self.storage.local / self.path).exists()
        try:
            obstore.head(self.storage.store, self.path)
        except (BaseError, FileNotFoundError):
            return False
        return True
