"""One load: what it works with and what it tells, passed along between the modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import InvalidError
from tailrace.loading.options import Options
from tailrace.loading.parts import Part, Sized, cut
from tailrace.loading.rows import Rejected
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo, quoted_name
from tailrace.store.transaction import Transaction

PART_BYTES = 64 * 1024 * 1024
SHOWN = 3  # rejected rows in a message


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a load is. Told now and then, from the thread that called `load`."""

    doing: str  # "reading" or "writing"
    files_done: int
    files: int
    bytes_done: int
    bytes: int  # of all files, as they are stored
    rows: int  # read so far
    rejected: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was made of the rows."""

    rows: int  # loaded
    rejected: int = 0
    repeated: int = 0  # left out because the input has their key twice
    kept: int = 0  # left out because the table has their key


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """A load in its transaction."""

    txn: Transaction
    table: TableInfo
    created: bool  # in this transaction, with inferred types
    files: tuple[Sized, ...]
    options: Options
    report: Path | None
    tell: Callable[[Progress], None]

    @property
    def runtime(self) -> Runtime:
        return self.txn.runtime

    @property
    def name(self) -> str:
        return quoted_name(self.table.schema, self.table.name)

    def parts(self, *, divide: bool) -> list[Part]:
        """The input, cut."""
        return cut(self.files, size=PART_BYTES, divide=divide)

    def refusal(self, rejected: Iterable[Rejected]) -> InvalidError:
        """Why nothing is loaded: the first rows that don't fit."""
        order = {one.file.name: number for number, one in enumerate(self.files)}
        first = sorted(rejected, key=lambda one: (order[one.file], one.line))[:SHOWN]
        lines = [f"rows that do not fit {self.table.full_name}; nothing was loaded:"]
        lines += [f"  {one}" for one in first]
        if self.created and any(one.column for one in first):
            lines.append(
                "The types come from the first rows of each file: create the table first, with "
                "the types that you want."
            )
        lines.append("Mend the rows, or load the others with on_error skip or report.")
        return InvalidError("\n".join(lines))


class Teller:
    """Counts what is done, and tells it."""

    def __init__(self, job: LoadJob, parts: Iterable[Part]) -> None:
        self._job = job
        self._open: dict[str, int] = {}  # parts to go, by file
        for part in parts:
            self._open[part.file.place] = self._open.get(part.file.place, 0) + 1
        total = sum(one.file.size for one in job.files)
        self._told = Progress(
            doing="reading",
            files_done=len(job.files) - len(self._open),  # empty ones
            files=len(job.files),
            bytes_done=0,
            bytes=total,
            rows=0,
            rejected=0,
        )
        job.tell(self._told)

    def read(self, parts: Iterable[Part], *, rows: int, rejected: int) -> None:
        """Some parts have been read."""
        size, files = 0, 0
        for part in parts:
            left = self._open[part.file.place] = self._open[part.file.place] - 1
            files += left == 0
            whole = part.file.size
            size += part.size if part.file.format != "parquet" else whole * (left == 0)
        told = self._told
        self._told = replace(
            told,
            files_done=told.files_done + files,
            bytes_done=min(told.bytes, told.bytes_done + size),
            rows=told.rows + rows,
            rejected=told.rejected + rejected,
        )
        self._job.tell(self._told)

    def writing(self) -> None:
        """All has been read."""
        self._told = replace(self._told, doing="writing", bytes_done=self._told.bytes)
        self._job.tell(self._told)
