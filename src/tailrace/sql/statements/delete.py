"""DELETE FROM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.spark_sql.types import quote
from tailrace.sql import edits
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, counted, done
from tailrace.sql.source_text import SourceText
from tailrace.store.names import split_name
from tailrace.store.schema import FILE, POS

if TYPE_CHECKING:
    from tailrace.lake import Lake


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
            edited = edits.change(
                lake,
                txn,
                self.name,
                f"SELECT {FILE}, {POS} FROM {edits.TARGET} AS {quote(self.alias)} WHERE ({where})",
                args,
                alias=self.alias,
                source_text=source_text,
            )
        count = edited.removed
        message = f"{counted(count, 'row')} deleted from {self.name}"
        return done(lake, message, {"rows": count}, snapshot=txn.snapshot)


def read(parser: Parser) -> Delete:
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
