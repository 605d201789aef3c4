"""Rows into data files: by the driver for local rows, in one Spark job for a DataFrame.

Always true: what is written here is not visible. Names are new, and the catalog doesn't know
them before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.store import rows as row_checks
from tailrace.store.files import DataFile, Op
from tailrace.store.parquet_writer import FileWriter
from tailrace.store.runtime import Runtime
from tailrace.store.schema import Column, TableInfo
from tailrace.store.spark_tasks import run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files that rows went into and, where the driver had them at hand, their keys."""

    files: tuple[DataFile, ...]
    keys: pa.Table | None = None  # physical names, sorted

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def write_rows(runtime: Runtime, table: TableInfo, rows: object, *, txn_id: str, op: Op) -> Written:
    """Write rows of any supported form; what doesn't fit the table is an InvalidError."""
    writer = FileWriter(
        storage=runtime.storage, settings=runtime.settings, table=table, txn_id=txn_id, op=op
    )
    if row_checks.is_spark(rows):
        return Written(files=_write_frame(writer, rows))
    return _write_local(writer, rows)


def _write_local(writer: FileWriter, rows: object) -> Written:
    table = writer.table
    fitted = fit_local(rows, table, table.columns)
    names = [column.physical for column in table.key_columns]
    if names:
        fitted = row_checks.sort(fitted, names)
    files = tuple(writer.write([fitted]))
    return Written(files=files, keys=fitted.select(names) if names else None)


def fit_local(rows: object, table: TableInfo, columns: Sequence[Column]) -> pa.Table:
    """Local rows with exactly these columns, their types and physical names."""
    local = row_checks.to_arrow(rows, table, columns)
    given = dict(zip((c.name for c in columns), local.schema.types, strict=True))
    row_checks.check_types(given, table, columns)
    return row_checks.fit(local, table.full_name, columns)


def _write_frame(writer: FileWriter, frame: Any) -> tuple[DataFile, ...]:
    columns = writer.table.columns
    # By numbers instead of names: mapInArrow takes a dot in a name for a field's.
    names = {column.id: f"c{number}" for number, column in enumerate(columns)}
    selected = select_columns(frame, writer.table, columns).toDF(*names.values())
    keys = [names[number] for number in writer.table.key]
    if keys:
        # By range and not by hash: keys that arrive together live together, and few files
        # are opened to find them again.
        selected = selected.repartitionByRange(*keys).sortWithinPartitions(*keys)

    return tuple(run_over_rows(selected, writer.write))


def select_columns(frame: DataFrame, table: TableInfo, columns: Sequence[Column]) -> DataFrame:
    """A DataFrame's columns in the order of `columns`, under their physical names."""
    from pyspark.sql import functions as F

    names = row_checks.match_names(frame.columns, table, columns)
    described = {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}
    given = {c.name: _type_of(described[names[c.name]], table, c) for c in columns}
    row_checks.check_types(given, table, columns)
    return frame.select(*(F.col(types.quote(names[c.name])).alias(c.physical) for c in columns))


def _type_of(described: Any, table: TableInfo, column: Column) -> pa.DataType:
    if described == "void":
        return pa.null()  # bare NULLs fit anywhere
    try:
        return types.from_spark(described)
    except InvalidError as error:
        raise InvalidError(f"{table.full_name}.{column.name}: {error}") from error
