"""SELECT and its relatives: Spark runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql import names
from tailrace.sql.cursor import Cursor
from tailrace.sql.result import Result
from tailrace.sql.shown import Shown

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query."""

    sql: str
    shown: Shown

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        frame = names.frame_of(lake, self.sql, args, shown=self.shown)
        return Result(spark=lambda: lake.spark, frame=frame, shown=self.shown)


def read(cursor: Cursor) -> Query:
    """All that is left is the query."""
    if cursor.accept("TABLE"):  # which sqlglot does not know
        return Query(
            sql=f"SELECT * FROM {cursor.cut(cursor.rest())}", shown=Shown(text=cursor.text)
        )
    span = cursor.rest()
    return Query(sql=cursor.cut(span), shown=Shown(text=cursor.text, offset=span.start))
