"""Which column of a file fills which column of the table, or why it can't.

Always true: this is settled before any row is read, so that a row can only fail by its values.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.loading.convert import Filling
from tailrace.loading.csv_rows import dialect_of
from tailrace.loading.json_rows import JsonField, json_type
from tailrace.loading.options import Format, OnError, Options
from tailrace.loading.rows import nearest
from tailrace.loading.shape import Shape
from tailrace.loading.source import InputFile
from tailrace.loading.text import Dialect
from tailrace.spark_sql import types
from tailrace.store.schema import Column, TableInfo


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one file fills the table. Sent to Spark's workers."""

    filling: Filling
    width: int  # columns of the file
    dialect: Dialect | None = None  # of CSV
    json: tuple[JsonField, ...] = ()


def lay_out(file: InputFile, shape: Shape, table: TableInfo, options: Options) -> Layout:
    """A file's layout, or an InvalidError that names the file, the column and both types."""
    sources: dict[int, int] = {}
    for number, name in enumerate(shape.columns):
        column = _column(name, table)
        if column is None:
            if file.format is Format.JSON and options.on_error is not OnError.ABORT:
                continue  # only the rows that have it are rejected
            raise _unknown(file, name, table)
        _check(file, name, shape.columns[name], column, table)
        sources[column.id] = number
    fields: tuple[JsonField, ...] = ()
    if file.format is Format.JSON:
        # A later row may have a key that the sample lacks.
        spelled = {name.casefold(): name for name in shape.columns}
        known = [column for column in table.columns if json_type(column.type) is not None]
        fields = tuple(
            JsonField(
                key=spelled.get(column.name.casefold(), column.name),
                column=column.name,
                type=column.type,
            )
            for column in known
        )
        sources = {column.id: number for number, column in enumerate(known)}
    elif shape.columns:
        _check_missing(file, sources, table)
    filling = Filling(
        table=table.full_name,
        columns=table.columns,
        sources=tuple(sources.get(column.id) for column in table.columns),
        time_zone=options.time_zone,
    )
    return Layout(
        filling=filling,
        width=len(shape.columns),
        dialect=dialect_of(file, options),
        json=fields,
    )


def _column(name: str, table: TableInfo) -> Column | None:
    return next((c for c in table.columns if c.name.casefold() == name.casefold()), None)


def _unknown(file: InputFile, name: str, table: TableInfo) -> InvalidError:
    names = [column.name for column in table.columns]
    near = nearest(name, names) or f"; it has {', '.join(names)}"
    return InvalidError(
        f"{file.name} has a column {name!r}, which {table.full_name} does not have{near}"
    )


def _check(
    file: InputFile, name: str, given: pa.DataType, column: Column, table: TableInfo
) -> None:
    wanted = types.spark_type(column.type)
    if file.format is Format.PARQUET and not types.accepts(column.type, given):
        raise InvalidError(
            f"{file.name}: column {name!r} is {types.spark_type(given)}, but "
            f"{table.full_name}.{column.name} is {wanted}: convert the file, or load it into "
            "another table"
        )
    unreadable = file.format is Format.JSON and json_type(column.type) is None
    if unreadable or (file.format is Format.CSV and not _has_text(column.type)):
        raise InvalidError(
            f"{file.name}: column {name!r} fills {table.full_name}.{column.name}, which is "
            f"{wanted}: such values can't be read from {file.format.upper()}; use Parquet"
        )


def _has_text(kind: pa.DataType) -> bool:
    """Whether CSV has values of a type."""
    return types.is_atomic(kind) and not pa.types.is_binary(kind)


def _check_missing(file: InputFile, sources: dict[int, int], table: TableInfo) -> None:
    for column in table.columns:
        if column.id not in sources and not column.nullable:
            raise InvalidError(
                f"{file.name} has no column {column.name!r}, which must not be NULL in "
                f"{table.full_name}"
            )
