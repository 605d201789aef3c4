"""The files that a table consists of, as frozen values.

A data file holds rows; a delete file says which of its rows are gone, and since which snapshot.
A row's identity is the pair (file key, position), equivalent to its DuckLake row id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Op(StrEnum):
    """What a data file came from."""

    APPEND = "append"
    UPSERT = "upsert"
    COMPACTION = "compaction"  # not a change: the feed leaves such files out


@dataclass(frozen=True, kw_only=True)
class ColumnStats:
    """Statistics of one column in one file; bounds are text, as the catalog stores them."""

    column_id: int
    size: int  # compressed bytes
    values: int  # not NULL
    nulls: int
    min: str | None  # None: unknown
    max: str | None
    has_nan: bool | None = None  # for floats


@dataclass(frozen=True, kw_only=True)
class DeleteFile:
    """The deleted positions of one data file."""

    id: int
    path: str  # relative to the lake
    data_path: str  # the data file's, relative to the lake
    begin: int  # the snapshot of the first delete in it
    last: int  # of the latest one; above `begin`, the file keeps a snapshot for each position
    count: int
    size: int

    @property
    def is_partial(self) -> bool:
        """Whether the file keeps a snapshot for each position."""
        return self.last > self.begin


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """An object with rows of a table."""

    key: int  # the value of its hidden column `_file`
    path: str  # relative to the lake
    rows: int
    size: int
    footer: int
    op: Op
    id: int = -1  # DuckLake's data_file_id; -1 until committed
    begin: int = -1  # the snapshot from which it is visible; -1 until committed
    end: int | None = None  # the snapshot from which it is no longer
    deletes: DeleteFile | None = None
    stats: tuple[ColumnStats, ...] = ()  # only in files that this process has just written
