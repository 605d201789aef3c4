"""A column as the rows that DuckLake keeps of it: one for itself, one for each field inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace.spark_sql import types
from tailrace.store.schema import Column


def column_rows(table_id: int, snapshot: int, column: Column) -> Iterator[dict[str, Any]]:
    """The rows of a column and of what is inside of it."""
    ids = iter((column.id, *column.inner))
    yield from _field_rows(
        table_id, snapshot, pa.field(column.name, column.type, column.nullable), ids, None
    )


def _field_rows(
    table_id: int, snapshot: int, field: pa.Field, ids: Iterator[int], parent: int | None
) -> Iterator[dict[str, Any]]:
    number = next(ids)
    atomic = types.is_atomic(field.type)
    yield {
        "column_id": number,
        "begin_snapshot": snapshot,
        "table_id": table_id,
        "column_order": number,
        "column_name": field.name,
        "column_type": types.lake_type(field.type),
        "default_value": "NULL",
        "nulls_allowed": field.nullable,
        "parent_column": parent,
        "default_value_type": "literal" if atomic else "",
        "default_value_dialect": "duckdb",
    }
    for child in types.children_of(field.type):
        yield from _field_rows(table_id, snapshot, child, ids, number)
