"""Definitions over two tables that nobody has made: what planning knows needs no lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.store.schema import Column, TableInfo
from tailrace.views.definition import Input, define, table_input

if TYPE_CHECKING:
    from tailrace.views.definition import Definition
    from tailrace.views.incremental.layout import Layout

KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "a": pa.int64(),
    "b": pa.int64(),
    "s": pa.string(),
    "x": pa.float64(),
    "d": pa.decimal128(10, 2),
    "seen": pa.timestamp("us", "UTC"),
}


def find(_schema: str, name: str) -> Input:
    """Any name is a table with these columns, and with the key `id`."""
    columns = tuple(
        Column(id=n, name=column, physical=column, type=kind, nullable=column != "id")
        for n, (column, kind) in enumerate(KINDS.items(), 1)
    )
    return table_input(
        TableInfo(
            id=1, uuid=name, schema_id=1, schema="main", name=name, path="", columns=columns,
            key=(1,),
        )
    )  # fmt: skip


def definition(query: str) -> Definition:
    return define(query, find)


def layout(query: str) -> Layout:
    made = definition(query)
    assert made.layout is not None, made.reason
    return made.layout
