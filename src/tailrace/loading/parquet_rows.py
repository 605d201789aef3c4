"""Rows of Parquet, by row group. A row's line is its number in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.errors import InvalidError
from tailrace.loading.rows import Block, as_json
from tailrace.loading.source import InputFile
from tailrace.spark_sql.types import TIMESTAMP
from tailrace.store.rows import plain_rows

_BATCH_ROWS = 64 * 1024


def open_parquet(file: InputFile, source: pa.NativeFile) -> pq.ParquetFile:
    """Open a Parquet file and read its footer."""
    try:
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidError(f"{file.name} is not a Parquet file: {error}") from error


def schema_of(parquet: pq.ParquetFile) -> pa.Schema:
    """The columns, with the types in which they are read."""
    schema = parquet.schema_arrow
    for number in _instants(parquet):
        schema = schema.set(number, schema.field(number).with_type(TIMESTAMP))
    return schema


def _instants(parquet: pq.ParquetFile) -> list[int]:
    """The columns of INT96: points in time, which is what Spark writes timestamps as.

    Parquet doesn't say so, and Arrow reads them as times without a zone.
    """
    leaves = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    names = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    return [number for number, name in enumerate(parquet.schema_arrow.names) if name in names]


def read_parquet(
    file: InputFile, source: pa.NativeFile, *, groups: Sequence[int]
) -> Iterator[Block]:
    """The rows of some row groups."""
    parquet = open_parquet(file, source)
    instants = _instants(parquet)
    line = 0
    try:
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=list(groups)):
            rows = pa.Table.from_batches([batch])
            for number in instants:
                times = pc.assume_timezone(rows.column(number), "UTC")
                rows = rows.set_column(number, rows.column_names[number], times)
            yield _block(rows, line)
            line += rows.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidError(f"{file.name} is damaged: {error}") from error


def _block(rows: pa.Table, line: int) -> Block:
    return Block(
        rows=rows,
        lines=np.arange(line, line + rows.num_rows),
        text=lambda row: as_json(plain_rows(rows.slice(row, 1))[0]),
    )
