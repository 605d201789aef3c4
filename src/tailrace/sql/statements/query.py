"""SELECT and its relatives: Spark runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql import query_frame
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result
from tailrace.sql.source_text import SourceText

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query."""

    sql: str
    source_text: SourceText

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        frame = query_frame.frame_of(lake, self.sql, args, source_text=self.source_text)
        return Result(spark=lambda: lake.spark, frame=frame, source_text=self.source_text)


def read(parser: Parser) -> Query:
    """Read everything that is left."""
    if parser.accept("TABLE"):  # which sqlglot does not know
        return Query(
            sql=f"SELECT * FROM {parser.cut(parser.rest())}",
            source_text=SourceText(text=parser.text),
        )
    span = parser.rest()
    return Query(sql=parser.cut(span), source_text=SourceText(text=parser.text, offset=span.start))
