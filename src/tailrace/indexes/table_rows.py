"""The table's rows for a search: those that fulfil its condition, and the columns of its hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot.errors import SqlglotError

from tailrace import spark_sql
from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.indexes.index_snapshot import IndexSnapshot
from tailrace.indexes.reader import Hits
from tailrace.indexes.row_addresses import RowSet
from tailrace.spark_sql.determinism import MOMENT, NONDETERMINISTIC, SESSION, nondeterministic_calls
from tailrace.store import predicate
from tailrace.store.parallel import each
from tailrace.store.reader.batches import read_rows as read_range
from tailrace.store.reader.row_range import RowRange
from tailrace.store.runtime import Runtime
from tailrace.store.schema import Column


def matching_rows(runtime: Runtime, snapshot: IndexSnapshot, where: object) -> RowSet:
    """The rows that a condition is true of."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidError(f"where is a condition in Spark SQL, not {show(where)}")

    def stats(columns: Iterable[int]) -> Any:
        return runtime.mirror.file_stats(snapshot.table, tuple(columns), snapshot.at)

    return predicate.matching(runtime, snapshot.scan, where, stats)


def is_deterministic(where: str) -> bool:
    """Whether a condition is true of the same rows whenever it is evaluated."""
    try:
        tree = spark_sql.parse_one(where)
    except SqlglotError:
        # Spark may know better, as of a column called desc.
        return _words(where).isdisjoint(NONDETERMINISTIC | MOMENT | SESSION)
    return next(nondeterministic_calls(tree), None) is None


def _words(where: str) -> set[str]:
    try:
        return {token.text.casefold() for token in spark_sql.tokenize(where)}
    except SqlglotError as error:
        raise InvalidError(f"cannot read the condition {show(where)}") from error


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
