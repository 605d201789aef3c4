"""Turns the hits of a search into the table that users get.

Always true: the result says, in its schema's metadata, which snapshot it reflects (`as_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.arguments import checked, show
from tailrace.errors import InvalidError
from tailrace.indexes.reader import Hits, Reader
from tailrace.indexes.table_rows import read_rows
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo

SCORE, HIGHLIGHT = "score", "highlight"
# What the schema of a result says of it.
AS_OF, IS_STALE = b"tailrace.snapshot", b"tailrace.stale"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found, before columns are added to it."""

    hits: Hits
    reader: Reader
    snapshot: int  # that the result reflects
    is_stale: bool

    @property
    def table(self) -> TableInfo:
        """The table as it was searched."""
        return self.reader.snapshot.table


def to_table(
    runtime: Runtime,
    found: Found,
    query: object = None,
    *,
    columns: Sequence[str] | None = None,
    highlight: bool = False,
) -> pa.Table:
    """What was found as a table: keys, the score, the columns asked for, and highlights."""
    table, hits = found.table, found.hits
    definition = found.reader.snapshot.definition
    if isinstance(columns, str):
        columns = [columns]
    if columns is not None and not _are_names(columns):
        raise InvalidError(f"columns are a list of names, not {show(columns)}")
    if columns is None and not table.key:
        columns = [column.name for column in table.columns]
    wanted = [table.column(name) for name in columns or ()]
    result = dict(zip(hits.keys.column_names, hits.keys.columns, strict=True))
    taken = {name.casefold() for name in (*result, *(column.name for column in wanted))}
    result[_free(SCORE, taken)] = pa.array(hits.scores)
    if highlight and not definition.kind.has_highlights:
        raise InvalidError("only what a full-text index finds has highlights")
    more = [column for column in wanted if column.name not in result]
    searched = definition.columns_of(table) if highlight else []
    if more or searched:
        rows = read_rows(runtime, found.reader.snapshot, hits, [*more, *searched])
        result |= {column.name: rows.column(column.name) for column in more}
        if highlight:
            texts = [rows.column(column.name).to_pylist() for column in searched]
            shown = found.reader.highlights(query, texts) if rows.num_rows else []
            result[_free(HIGHLIGHT, taken)] = pa.array(shown, pa.string())
    metadata = {AS_OF: str(found.snapshot), IS_STALE: str(found.is_stale).lower()}
    return pa.table(result, metadata=metadata)


def _are_names(columns: object) -> bool:
    return isinstance(columns, Sequence) and all(isinstance(name, str) for name in columns)


def _free(name: str, taken: set[str]) -> str:
    """A name for a column that we add; the table's own keep theirs."""
    while name in taken:
        name = f"_{name}"
    return name


@checked
def as_of(result: pa.Table) -> int:
    """The snapshot that the result of a search reflects."""
    metadata = result.schema.metadata or {}
    if AS_OF not in metadata:
        raise InvalidError("this table is not the result of a search")
    return int(metadata[AS_OF])


@checked
def is_stale(result: pa.Table) -> bool:
    """Whether a search with `stale_ok` gave less than it was asked for."""
    return bool((result.schema.metadata or {}).get(IS_STALE) == b"true")
