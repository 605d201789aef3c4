"""UPDATE: replaces the rows that match, in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.spark_sql.types import quote
from tailrace.sql import edits
from tailrace.sql.diagnostics import Span, did_you_mean
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, counted, done
from tailrace.sql.source_text import SourceText
from tailrace.store.names import fold, split_name
from tailrace.store.schema import FILE, POS, TableInfo

if TYPE_CHECKING:
    from tailrace.lake import Lake


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
            edited = edits.change(
                lake,
                txn,
                self.name,
                f"SELECT {FILE}, {POS}, true AS {edits.COMES}, {items} "
                f"FROM {edits.TARGET} AS {quote(self.alias)}{where}",
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


def read(parser: Parser) -> Update:
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
