"""A load that is about to run: its table, its files and its options, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import InvalidError
from tailrace.fixes import Action, Fix
from tailrace.loading.options import Options
from tailrace.loading.parts import Part, PreparedFile, cut
from tailrace.loading.progress import Progress, ProgressCounter
from tailrace.loading.rows import Rejected
from tailrace.store.names import quoted_name
from tailrace.store.runtime import Runtime
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
