"""A table and a file as a load knows them, for tests of its pure modules."""

from __future__ import annotations

from typing import Any

from tailrace.loading.options import Format
from tailrace.loading.source import InputFile
from tailrace.spark_sql.types import parse_type
from tailrace.store.schema import Column, TableInfo


def a_table(
    *, key: tuple[str, ...] = (), required: tuple[str, ...] = (), **kinds: str
) -> TableInfo:
    """The table main.t with these columns."""
    columns = tuple(
        Column(id=n, name=name, physical=name, type=parse_type(kind), nullable=name not in required)
        for n, (name, kind) in enumerate(kinds.items(), 1)
    )
    return TableInfo(
        id=1,
        uuid="",
        schema_id=1,
        schema="main",
        name="t",
        path="t/",
        columns=columns,
        key=tuple(column.id for column in columns if column.name in key),
        next_column_id=len(columns) + 1,
    )


def a_file(name: str = "a.csv", *, size: int = 100, **more: Any) -> InputFile:
    """A file of the format that its name says."""
    kind = Format.JSON if name.endswith("l") else Format(name.rpartition(".")[2])
    return InputFile(name=name, location=f"/in/{name}", size=size, format=kind, **more)
