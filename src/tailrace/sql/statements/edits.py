"""UPDATE and DELETE FROM, and how the edits of these and of MERGE are applied.

Each is one query over the table's rows, applied through the store's own write path. A frame of
edits has the places of rows that go (`_file` and `_pos`, NULL for rows that only come), a flag for
whether a row comes, and the new row's columns. Few edits are applied in the process; many stay with
Spark, on disk, so that both halves of them are the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.spark_sql.types import quote
from tailrace.sql import query_frame
from tailrace.sql.diagnostics import QueryText, Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, counted, done
from tailrace.store.files import PositionsByFile
from tailrace.store.find_rows import collect_positions
from tailrace.store.names import split_name
from tailrace.store.schema import FILE, POS, STORE_PREFIX, TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_scan import to_df
from tailrace.store.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from tailrace.lake import Lake


# What the query calls the table that is changed, and the flag of edits that give a new row.
TARGET = f"{STORE_PREFIX}target"
COMES = f"{STORE_PREFIX}comes"


@dataclass(frozen=True, kw_only=True)
class Edited:
    """How many rows an edit removed and added."""

    removed: int
    added: int


def change(
    lake: Lake,
    txn: Transaction,
    name: str,
    query: QueryText,
    args: Mapping[str, Any],
    *,
    alias: str,
) -> Edited:
    """Apply the edits that a query over `TARGET`, the table under its alias, gives."""
    rows = to_df(lake.runtime, txn.scan(*split_name(name)), places=True)
    own = name if alias == split_name(name)[1] else None
    edits = query_frame.frame_of(lake, query, args, given={TARGET: rows}, target=own)
    with query.spark_faults():
        return _apply(lake, txn, name, edits)


def _apply(lake: Lake, txn: Transaction, name: str, edits: DataFrame) -> Edited:
    """Remove the rows at the edits' places, and add the new ones."""
    table = txn.info(name)
    fitted_rows = edits.select(FILE, POS)
    if COMES in edits.columns:
        kinds = types.of_columns(edits.schema)
        new = [fitted(column.name, kinds[column.name], table) for column in table.columns]
        fitted_rows = edits.select(FILE, POS, COMES, *new)
    limit = lake.runtime.settings.local_rows
    with spark_faults():
        few = fitted_rows.limit(limit + 1).toArrow()
    if few.num_rows <= limit:
        return _apply_few(txn, name, few)
    return _apply_many(txn, name, fitted_rows)


def _apply_few(txn: Transaction, name: str, edits: pa.Table) -> Edited:
    gone = edits.filter(pc.is_valid(edits.column(FILE)))
    files, positions = (gone.column(column).to_numpy() for column in (FILE, POS))
    places = {int(file): np.unique(positions[files == file]) for file in np.unique(files)}
    _remove(txn, name, places, gone.num_rows)
    added = 0
    if COMES in edits.column_names:
        rows = edits.filter(edits.column(COMES)).drop_columns([FILE, POS, COMES])
        added = rows.num_rows
        if added:
            txn.table(name).append(rows)
    return Edited(removed=gone.num_rows, added=added)


def _apply_many(txn: Transaction, name: str, edits: DataFrame) -> Edited:
    from pyspark.sql import functions as F
    from pyspark.storagelevel import StorageLevel

    kept = edits.persist(StorageLevel.DISK_ONLY)
    try:
        gone = kept.where(F.col(FILE).isNotNull())
        with spark_faults():
            count = gone.count()
        places = collect_positions(gone, txn.scan(*split_name(name)).files)
        _remove(txn, name, places, count)
        added = 0
        if COMES in kept.columns:
            rows = kept.where(F.col(COMES)).drop(FILE, POS, COMES)
            with spark_faults():
                added = rows.count()
            txn.table(name).append(rows)
        return Edited(removed=count, added=added)
    finally:
        kept.unpersist()


def _remove(txn: Transaction, name: str, places: PositionsByFile, count: int) -> None:
    """Remove the rows at these places, which so many edits name."""
    if count != sum(len(positions) for positions in places.values()):
        raise InvalidError(
            f"{name}: several rows of the source match the same row, so that it is open which of "
            "them counts: make the source unique by the columns that ON compares"
        )
    txn.remove(name, places)


def fitted(name: str, source: pa.DataType, table: TableInfo) -> SparkColumn:
    """A column as its table stores it: numbers are cast to the column's type, or refused.

    A decimal is rounded, as in SQL; any other loss is an error. The store's own checks refuse text
    that would have to be parsed.
    """
    from pyspark.sql import functions as F

    kind = table.column(name).type
    value = F.col(types.quote(name))
    if source == kind or not (_is_number(kind) and _is_number(source)):
        return value.alias(name)
    fitting = value.try_cast(types.spark_type(kind))
    lost = value.isNotNull() & fitting.isNull()
    if pa.types.is_integer(kind):
        lost = lost | (fitting != value)
    message = F.concat(
        F.lit(f"{table.full_name}.{name} is {types.spark_type(kind)}, which does not hold "),
        value.cast("string"),
    )
    return F.when(lost, F.raise_error(message)).otherwise(fitting).alias(name)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


# --- the statements ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """`column = value`."""

    column: str
    place: Span  # of the column's name
    value: Span


def read_update(parser: Parser) -> Run:
    """`UPDATE table [AS alias] SET column = value, … [WHERE condition]`."""
    name = parser.object_name("the table")
    alias = read_alias(parser, "SET") or split_name(name)[1]
    parser.expect("SET")
    sets = read_sets(parser, "WHERE")
    where = _read_where(parser)

    def run(lake: Lake, args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            table = txn.info(name)
            values = new_values(parser, table, sets)
            items = ", ".join(
                f"({parser.cut(values[c.name])}) AS {quote(c.name)}"
                if c.name in values
                else f"{quote(alias)}.{quote(c.name)}"
                for c in table.columns
            )
            sql = (
                f"SELECT {FILE}, {POS}, true AS {COMES}, {items} "
                f"FROM {TARGET} AS {quote(alias)} WHERE ({where})"
            )
            edited = change(lake, txn, name, parser.put_together(sql), args, alias=alias)
        message = f"{counted(edited.removed, 'row')} updated in {name}"
        return done(lake, message, {"rows": edited.removed}, snapshot=txn.snapshot)

    return run


def read_delete(parser: Parser) -> Run:
    """`DELETE FROM table [AS alias] [WHERE condition]`."""
    name = parser.object_name("the table")
    alias = read_alias(parser, "WHERE") or split_name(name)[1]
    where = _read_where(parser)

    def run(lake: Lake, args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            sql = f"SELECT {FILE}, {POS} FROM {TARGET} AS {quote(alias)} WHERE ({where})"
            edited = change(lake, txn, name, parser.put_together(sql), args, alias=alias)
        message = f"{counted(edited.removed, 'row')} deleted from {name}"
        return done(lake, message, {"rows": edited.removed}, snapshot=txn.snapshot)

    return run


def read_alias(parser: Parser, stop: str) -> str | None:
    """`[AS] alias` before this word, if it is there."""
    if parser.accept("AS") or parser.word() not in (stop, ""):
        return parser.name("the alias")
    return None


def _read_where(parser: Parser) -> str:
    return parser.cut(parser.rest("the condition")) if parser.accept("WHERE") else "true"


def read_sets(parser: Parser, *stops: str) -> list[Assignment]:
    """`column = value, …` up to one of these words."""

    def read_one() -> Assignment:
        column, place = parser.column("the column")
        if parser.accept("."):  # alias.column
            column, place = parser.column("the column")
        parser.expect("=")
        value = parser.upto(",", *stops, what="the new value")
        return Assignment(column=column, place=place, value=value)

    return parser.each(read_one)


def new_values(parser: Parser, table: TableInfo, sets: Sequence[Assignment]) -> dict[str, Span]:
    """The new expression of each column that is set."""
    known = [column.name for column in table.columns]
    values: dict[str, Span] = {}
    for one in sets:
        name = parser.known_column(one.column, one.place, known, table.full_name)
        if name in values:
            raise parser.refuse(one.place, f"the column {name} is set twice")
        values[name] = one.value
    return values
