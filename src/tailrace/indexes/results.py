"""Turns the hits of a search into the table that users get.

Always true: the result says, in its schema's metadata, which snapshot it reflects (`as_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.arguments import checked, show
from tailrace.errors import InvalidError
from tailrace.indexes.index_snapshot import IndexSnapshot
from tailrace.indexes.reader import Hits, Reader
from tailrace.store.files import RowRange
from tailrace.store.reader import read_rows as read_range
from tailrace.store.runtime import Runtime
from tailrace.store.scan import each
from tailrace.store.schema import Column, TableInfo

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


# How slowly a rank counts less further down; the constant of the paper that proposed it.
_CONSTANT = 60

Numbers = npt.NDArray[np.int64]


def rank_fusion(
    lists: Sequence[Hits], limit: int
) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
    """Files, positions and scores of the best rows, by reciprocal rank fusion.

    Scores of text and of vectors cannot be compared; ranks can. Rows with equal scores come in the
    order of their addresses, so that a repeated search gives the same result.
    """
    scores: dict[tuple[int, int], float] = {}
    for hits in lists:
        addresses = zip(hits.files.tolist(), hits.positions.tolist(), strict=True)
        for rank, address in enumerate(addresses, 1):
            scores[address] = scores.get(address, 0.0) + 1 / (_CONSTANT + rank)
    best = sorted(scores, key=lambda address: (-scores[address], address))[:limit]
    files = np.array([file for file, _ in best], np.int64)
    positions = np.array([position for _, position in best], np.int64)
    return files, positions, np.array([scores[address] for address in best])


def read_rows(
    runtime: Runtime, snapshot: IndexSnapshot, hits: Hits, columns: Sequence[Column]
) -> pa.Table:
    """Columns of the rows that were found, in their order; only their row groups are read."""
    unique = list({column.id: column for column in columns}.values())
    schema = pa.schema([(column.name, column.type) for column in unique])
    keys = np.unique(hits.files)

    def read(key: int) -> tuple[Any, pa.Table]:
        own = np.flatnonzero(hits.files == key)
        order = np.argsort(hits.positions[own], kind="stable")
        some = RowRange.at(snapshot.files[int(key)], hits.positions[own][order])
        return own[order], read_range(runtime.storage, some, unique).cast(schema)

    parts = each(read, list(keys))
    if not parts:
        return schema.empty_table()
    ranks = np.concatenate([ranks for ranks, _ in parts])
    rows = pa.concat_tables([rows for _, rows in parts])
    return rows.take(pa.array(np.argsort(ranks, kind="stable")))
