"""UPDATE and DELETE FROM, and how the edits of these and of MERGE are applied.

Each is one query over the table's rows, applied through the store's own write path. A frame of
edits has the places of rows that go (`_file` and `_pos`, NULL for rows that only come), a flag for
whether a row comes, and the new row's columns. Few edits are applied in the process; many stay with
Spark, on disk, so that both halves of them are the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.spark_sql.types import quote
from tailrace.sql import query_frame
from tailrace.sql.diagnostics import SourceText, Span, did_you_mean
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, counted, done
from tailrace.store.files import PositionsByFile
from tailrace.store.keys import collect_positions
from tailrace.store.names import fold, split_name
from tailrace.store.schema import FILE, POS, STORE_PREFIX, TableInfo
from tailrace.store.spark_faults import spark_faults
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
    sql: str,
    args: Mapping[str, Any],
    *,
    alias: str,
    source_text: SourceText,
) -> Edited:
    """Apply the edits that a query over `TARGET`, the table under its alias, gives."""
    rows = to_df(lake.runtime, txn.scan(*split_name(name)), places=True)
    own = name if alias == split_name(name)[1] else None
    edits = query_frame.frame_of(
        lake, sql, args, given={TARGET: rows}, source_text=source_text, target=own
    )
    with source_text.spark_faults():
        return _apply(lake, txn, name, edits)


def _apply(lake: Lake, txn: Transaction, name: str, edits: DataFrame) -> Edited:
    """Remove the rows at the edits' places, and add the new ones."""
    table = txn.info(name)
    fitted_rows = edits.select(FILE, POS)
    if COMES in edits.columns:
        kinds = {f["name"]: f["type"] for f in edits.schema.jsonValue()["fields"]}
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
    places: PositionsByFile = {}
    for file in pc.unique(gone.column(FILE)).to_pylist():
        own = gone.filter(pc.equal(gone.column(FILE), file))
        positions = own.column(POS).combine_chunks()
        if len(pc.unique(positions)) < len(positions):
            raise _twice(name)
        places[file] = positions.to_numpy()
    txn.remove(name, places)
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
        if count != sum(len(positions) for positions in places.values()):
            raise _twice(name)
        txn.remove(name, places)
        added = 0
        if COMES in kept.columns:
            rows = kept.where(F.col(COMES)).drop(FILE, POS, COMES)
            with spark_faults():
                added = rows.count()
            txn.table(name).append(rows)
        return Edited(removed=count, added=added)
    finally:
        kept.unpersist()


def _twice(name: str) -> InvalidError:
    return InvalidError(
        f"{name}: several rows of the source match the same row, so that it is open which of them "
        "counts: make the source unique by the columns that ON compares"
    )


def fitted(name: str, given: object, table: TableInfo) -> SparkColumn:
    """A column as its table stores it: numbers are cast to the column's type, or refused.

    A decimal is rounded, as in SQL; any other loss is an error. The store's own checks refuse text
    that would have to be parsed.
    """
    from pyspark.sql import functions as F

    kind = table.column(name).type
    value = F.col(types.quote(name))
    source = pa.null() if given == "void" else types.from_spark(given)
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


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """`column = value`."""

    column: str
    place: Span  # of the column's name
    value: Span


@dataclass(frozen=True, kw_only=True)
class Update:
    """`UPDATE table [AS alias] SET column = value, … [WHERE condition]`."""

    parser: Parser
    name: str
    alias: str
    sets: tuple[Assignment, ...]
    where: Span | None

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        cut = self.parser.cut
        source_text = SourceText(text=self.parser.text)
        with lake.transaction() as txn:
            table = txn.info(self.name)
            values = new_values(self.parser, table, self.sets)
            items = ", ".join(
                f"({cut(values[c.name])}) AS {quote(c.name)}"
                if c.name in values
                else f"{quote(self.alias)}.{quote(c.name)}"
                for c in table.columns
            )
            where = f" WHERE ({cut(self.where)})" if self.where is not None else ""
            edited = change(
                lake,
                txn,
                self.name,
                f"SELECT {FILE}, {POS}, true AS {COMES}, {items} "
                f"FROM {TARGET} AS {quote(self.alias)}{where}",
                args,
                alias=self.alias,
                source_text=source_text,
            )
        count = edited.removed
        message = f"{counted(count, 'row')} updated in {self.name}"
        return done(lake, message, {"rows": count}, snapshot=txn.snapshot)


def new_values(parser: Parser, table: TableInfo, sets: tuple[Assignment, ...]) -> dict[str, Span]:
    """The new expression of each column that is set."""
    known = {fold(column.name): column.name for column in table.columns}
    values: dict[str, Span] = {}
    for one in sets:
        name = known.get(fold(one.column))
        if name is None:
            near = did_you_mean(one.column, known.values())
            raise parser.refuse(
                one.place,
                f"{table.full_name} has no column {one.column}{near}",
                hint=f"its columns: {', '.join(known.values())}",
            )
        if name in values:
            raise parser.refuse(one.place, f"the column {name} is set twice")
        values[name] = one.value
    return values


def read_sets(parser: Parser, *stops: str) -> Iterator[Assignment]:
    """`column = value, …` up to one of these words."""
    while True:
        start = parser.offset
        column = parser.name("the column")
        if parser.accept("."):  # alias.column
            start = parser.offset
            column = parser.name("the column")
        place = Span(start=start, end=parser.last_end)
        parser.expect("=")
        value = parser.upto(",", *stops)
        if value.start == value.end:
            raise parser.fail("the new value is missing")
        yield Assignment(column=column, place=place, value=value)
        if not parser.accept(","):
            return


def read_update(parser: Parser) -> Update:
    """After UPDATE."""
    name = parser.object_name("the table")
    alias = split_name(name)[1]
    if parser.accept("AS") or parser.word() != "SET":
        if parser.at_end:
            parser.expect("SET")
        alias = parser.name("the alias")
    parser.expect("SET")
    sets = tuple(read_sets(parser, "WHERE"))
    where = None
    if parser.accept("WHERE"):
        where = parser.rest()
        if where.start == where.end:
            raise parser.fail("the condition is missing")
    return Update(parser=parser, name=name, alias=alias, sets=sets, where=where)


@dataclass(frozen=True, kw_only=True)
class Delete:
    """`DELETE FROM table [AS alias] [WHERE condition]`."""

    parser: Parser
    name: str
    alias: str
    where: Span | None

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        where = "true" if self.where is None else self.parser.cut(self.where)
        source_text = SourceText(text=self.parser.text)
        with lake.transaction() as txn:
            edited = change(
                lake,
                txn,
                self.name,
                f"SELECT {FILE}, {POS} FROM {TARGET} AS {quote(self.alias)} WHERE ({where})",
                args,
                alias=self.alias,
                source_text=source_text,
            )
        count = edited.removed
        message = f"{counted(count, 'row')} deleted from {self.name}"
        return done(lake, message, {"rows": count}, snapshot=txn.snapshot)


def read_delete(parser: Parser) -> Delete:
    """After DELETE FROM."""
    name = parser.object_name("the table")
    alias = split_name(name)[1]
    if parser.accept("AS") or parser.word() not in ("WHERE", ""):
        alias = parser.name("the alias")
    where = None
    if parser.accept("WHERE"):
        where = parser.rest()
        if where.start == where.end:
            raise parser.fail("the condition is missing")
    return Delete(parser=parser, name=name, alias=alias, where=where)
