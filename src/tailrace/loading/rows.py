"""Rows on their way from a file to a table, and rows that are rejected.

Always true: a row is identified by its part of the input and its line there, counted from 0. On
which line of the file a part begins is known only after all parts before it have been read; then
lines get the numbers that users see.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.store.schema import TableInfo

Lines = npt.NDArray[np.int64]

_SHOWN_VALUE = 100  # characters of a value in a message
_SHOWN_TEXT = 64 * 1024  # characters of a row in a report


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row that was not loaded."""

    file: str
    line: int  # from 1; of a Parquet file, the row's number
    column: str | None  # None if it is not one column's fault
    value: str | None
    reason: str
    text: str  # the row as the file has it; JSON for Parquet and for keys that are taken

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"{self.file}, line {self.line}{column}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a row of a part is rejected."""

    part: int
    line: int  # in the part, from 0
    reason: str
    text: str
    column: str | None = None
    value: str | None = None

    def at(self, file: str, first_line: int) -> Rejected:
        """The rejected row as users see it, in a part that begins on a line of a file."""
        return Rejected(
            file=file,
            line=first_line + self.line,
            column=self.column,
            value=self.value,
            reason=self.reason,
            text=self.text,
        )


@dataclass(frozen=True, kw_only=True)
class PartStarts:
    """Where each part of the input begins, by its number."""

    files: tuple[str, ...]
    first_lines: tuple[int, ...]

    def of(self, misfit: Misfit) -> Rejected:
        """A rejected row as users see it."""
        return misfit.at(self.files[misfit.part], self.first_lines[misfit.part])

    def text(self, part: int, line: int) -> str:
        """Where a row is, for a message."""
        return f"{self.files[part]}, line {self.first_lines[part] + line}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some rows as read, not yet converted to the table's types."""

    rows: pa.Table
    lines: Lines  # of each row, in the part
    text: Callable[[int], str]  # a row as the file has it
    broken: list[Misfit] = field(default_factory=list)  # what could not be read at all


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Some rows converted to the table's types, and the rows that did not fit."""

    rows: pa.Table
    lines: Lines
    misfits: list[Misfit]


def shown(value: Any) -> str:
    """A value, shortened for a message."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def cut(text: str) -> str:
    """A row's text, shortened for a report."""
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"


def as_json(row: dict[str, Any]) -> str:
    """A row without a text of its own, as JSON."""
    return cut(json.dumps(row, default=str, ensure_ascii=False))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was probably meant, to append to a message."""
    by_fold = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), by_fold, n=1)
    return f"; did you mean {by_fold[near[0]]!r}?" if near else ""


def key_misfit(
    table: TableInfo, row: dict[str, Any], *, part: int, line: int, first: str | None
) -> Misfit:
    """A row that could be read, and is rejected because of its key.

    `first` says where an earlier row has it; None: the table does.
    """
    key = {column.name: row[column.name] for column in table.key_columns}
    why = f"exists in {table.full_name}" if first is None else f"stands in {first}"
    return Misfit(
        part=part, line=line, reason=f"the key {shown(key)} {why} already", text=as_json(row)
    )


def check_path(path: Path) -> None:
    """Raise if the report can't be written, before the work is done."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidError(f"the report cannot be written to {path}: name a file in a directory")


def write_report(path: Path, rejected: Iterable[Rejected]) -> None:
    """Write all rejected rows as CSV, which can be mended and loaded; at least a header."""
    try:
        with path.open("w", encoding="utf-8", newline="") as handle:
            rows = csv.writer(handle, lineterminator="\n")
            rows.writerow(field.name for field in fields(Rejected))
            rows.writerows(astuple(one) for one in rejected)
    except OSError as error:
        raise InvalidError(f"the report cannot be written to {path}: {error.strerror}") from error
