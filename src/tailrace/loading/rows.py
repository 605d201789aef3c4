"""Rows on their way from a file to a table, and rows that will not get there.

Always true: a row is known by the part of the input that it is in and its line there, counted
from 0 where the part begins. Where a part begins in its file is known once all before it have
been read; only then does a line get the number that users see.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Lines = npt.NDArray[np.int64]

_SHOWN_VALUE = 100  # characters of a value in a message
_SHOWN_TEXT = 64 * 1024  # characters of a row in a report


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row that was not loaded."""

    file: str
    line: int  # from 1; of a Parquet file, the row's number
    column: str | None  # None: it is not about one column
    value: str | None
    reason: str
    text: str  # the row as it stands in the file; of Parquet, and of a repeated key, as JSON

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}"
        return (
            f"{where}, column {self.column}: {self.reason}"
            if self.column
            else (f"{where}: {self.reason}")
        )


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a row of a part is rejected."""

    part: int
    line: int  # in the part, from 0
    reason: str
    text: str
    column: str | None = None
    value: str | None = None

    def placed(self, file: str, first_line: int) -> Rejected:
        """As users see it: `first_line` is the line at which the part begins."""
        return Rejected(
            file=file,
            line=first_line + self.line,
            column=self.column,
            value=self.value,
            reason=self.reason,
            text=self.text,
        )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the parts of the input are, by their numbers."""

    files: tuple[str, ...]
    first_lines: tuple[int, ...]

    def of(self, misfit: Misfit) -> Rejected:
        """A rejected row as users see it."""
        return misfit.placed(self.files[misfit.part], self.first_lines[misfit.part])

    def text(self, part: int, line: int) -> str:
        """A row's place in a message."""
        return f"{self.files[part]}, line {self.first_lines[part] + line}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some rows as they were read, not yet of the table's types."""

    rows: pa.Table
    lines: Lines  # of each row, in the part
    text: Callable[[int], str]  # a row as it stands in the file
    broken: list[Misfit] = field(default_factory=list)  # what could not be read at all


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Some rows of the table's types, under its columns' names, and what did not fit."""

    rows: pa.Table
    lines: Lines
    misfits: list[Misfit]


def shown(value: Any) -> str:
    """A value in a message."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def cut(text: str) -> str:
    """A row's text in a report."""
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"


def as_json(row: dict[str, Any]) -> str:
    """A row that has no text of its own, as text."""
    return cut(json.dumps(row, default=str, ensure_ascii=False))


def nearest(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant, to go on with after a message."""
    by_fold = {one.casefold(): one for one in known}
    found = difflib.get_close_matches(name.casefold(), by_fold, n=1)
    return f"; did you mean {by_fold[found[0]]!r}?" if found else ""
