"""Runs many searches at once on Spark: each task opens the index and searches its share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.indexes.index_snapshot import IndexSnapshot
from tailrace.indexes.reader import Opener
from tailrace.spark_sql.types import quote, spark_schema
from tailrace.store.runtime import Runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK, SCORE = "rank", "score"


def search_many(
    runtime: Runtime, snapshot: IndexSnapshot, queries: DataFrame, column: str, limit: int
) -> DataFrame:
    """The rows of `queries`, each with up to `limit` rows that were found for one of its columns.

    The snapshot goes to the tasks with what it needs and no more: the index as it is now.
    """
    if column not in queries.columns:
        raise InvalidError(f"the queries have no column {column!r}: {', '.join(queries.columns)}")
    wanted = snapshot.definition.kind.query_type
    given = queries.schema[column].dataType
    if given.typeName() != wanted:
        raise InvalidError(
            f"the column {column!r} is {given.simpleString()}: the index is searched for {wanted}s"
        )
    keys = snapshot.table.key_columns
    names = [*queries.columns, RANK, SCORE, *(key.name for key in keys)]
    if len({name.casefold() for name in names}) != len(names):
        raise InvalidError(
            f"the result would have a column twice ({', '.join(names)}): rename the queries'"
        )
    if not keys:
        raise InvalidError(f"{snapshot.table.full_name} has no primary key: search_many needs one")
    added = pa.schema(
        [(RANK, pa.int32()), (SCORE, pa.float64()), *((key.name, key.type) for key in keys)]
    )
    position = queries.columns.index(column)
    storage, cache_bytes = runtime.storage, runtime.settings.cache_bytes
    # Tasks read nothing of the table but the tail, and where rows have moved to.
    sent = replace(snapshot, files={}, deletes={})

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = Opener(storage, cache_bytes=cache_bytes)
        reader = opener.open(sent, tail=True)
        for batch in batches:
            parts = []
            for number, query in enumerate(batch.column(position).to_pylist()):
                if query is None:
                    continue
                try:
                    hits = reader.search(query, limit)
                except InvalidError as error:
                    raise InvalidError(f"{query!r}: {error}") from None
                count = len(hits.scores)
                own = batch.slice(number, 1).take(pa.array([0] * count, pa.int32()))
                arrays = [
                    *own.columns,
                    pa.array(range(1, count + 1), pa.int32()),
                    pa.array(hits.scores),
                    *(column.combine_chunks() for column in hits.keys.columns),
                ]
                parts.append(pa.RecordBatch.from_arrays(arrays, names=names))
            if parts:
                yield from pa.Table.from_batches(parts).combine_chunks().to_batches()

    given_columns = (f"{quote(f.name)} {f.dataType.simpleString()}" for f in queries.schema)
    return queries.mapInArrow(task, ", ".join([*given_columns, spark_schema(added)]))
