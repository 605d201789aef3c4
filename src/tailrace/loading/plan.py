"""A load that is about to run: its table, files and options in one transaction; how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Action, Fix, InvalidError
from tailrace.loading.options import Format, Options
from tailrace.loading.parts import Part, PreparedFile, cut
from tailrace.loading.rows import Rejected
from tailrace.loading.source import InputFile
from tailrace.store.names import quoted_name
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction

PART_BYTES = 64 * 1024 * 1024
SHOWN = 3  # rejected rows in a message


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was made of the rows."""

    rows: int  # loaded
    rejected: int = 0
    repeated: int = 0  # left out because the input has their key twice
    kept: int = 0  # left out because the table has their key


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What is to be loaded, and how."""

    txn: Transaction
    table: TableInfo
    created: bool  # in this transaction, with inferred types
    files: tuple[PreparedFile, ...]
    options: Options
    report: Path | None
    tell: Callable[[Progress], None]

    @property
    def runtime(self) -> Runtime:
        return self.txn.runtime

    @property
    def budget(self) -> Budget:
        """What a load may hold in this process."""
        return Budget.of(self.runtime.settings)

    @property
    def name(self) -> str:
        return quoted_name(self.table.schema, self.table.name)

    def parts(self, *, divide: bool) -> list[Part]:
        """The input, cut."""
        return cut(self.files, size=PART_BYTES, divide=divide)

    def progress(self, parts: Iterable[Part]) -> ProgressCounter:
        """Begin to tell how far the parts have been read."""
        return ProgressCounter(self.tell, [one.file for one in self.files], parts)

    def refusal(self, rejected: Iterable[Rejected]) -> InvalidError:
        """Why nothing is loaded: the first rows that don't fit."""
        order = {one.file.name: number for number, one in enumerate(self.files)}
        first = sorted(rejected, key=lambda one: (order[one.file], one.line))[:SHOWN]
        lines = [f"rows that do not fit {self.table.full_name}; nothing was loaded:"]
        lines += [f"  {one}" for one in first]
        if self.created and any(one.column for one in first):
            lines.append(
                "the types come from the first rows of each file: create the table first, with "
                "the types that you want"
            )
        return InvalidError("\n".join(lines), fix=Fix(Action.LEAVE_ROWS_OUT))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a load is. Told now and then, on the thread that called `load`."""

    doing: str = "reading"  # or "writing"
    files_done: int
    files: int
    bytes_done: int = 0
    bytes: int  # of all files, as they are stored
    rows: int = 0  # read so far
    rejected: int = 0


class ProgressCounter:
    """Adds up what is done, and tells it each time."""

    def __init__(
        self, tell: Callable[[Progress], None], files: Sequence[InputFile], parts: Iterable[Part]
    ) -> None:
        self._tell = tell
        self._unread = Counter(part.file.location for part in parts)  # parts, by file
        self._now = Progress(
            files_done=len(files) - len(self._unread),  # empty ones have no parts
            files=len(files),
            bytes=sum(file.size for file in files),
        )
        tell(self._now)

    def read(self, parts: Iterable[Part], *, rows: int, rejected: int) -> None:
        """Some parts have been read."""
        now = self._now
        files, size = now.files_done, now.bytes_done
        for part in parts:
            self._unread[part.file.location] -= 1
            is_last = not self._unread[part.file.location]
            files += is_last
            # Row groups say only how large they are uncompressed.
            is_parquet = part.file.format is Format.PARQUET
            size += part.file.size * is_last if is_parquet else part.size
        self._now = replace(
            now,
            files_done=files,
            bytes_done=min(now.bytes, size),
            rows=now.rows + rows,
            rejected=now.rejected + rejected,
        )
        self._tell(self._now)

    def writing(self) -> None:
        """All has been read."""
        self._now = replace(self._now, doing="writing", bytes_done=self._now.bytes)
        self._tell(self._now)
