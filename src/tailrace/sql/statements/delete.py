"""DELETE FROM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.spark_sql.types import quote
from tailrace.sql import edits
from tailrace.sql.cursor import Cursor
from tailrace.sql.fault import Span
from tailrace.sql.result import Result, done
from tailrace.sql.shown import Shown
from tailrace.store.schema import FILE, POS, split_name

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Delete:
    """`DELETE FROM table [AS alias] [WHERE condition]`."""

    cursor: Cursor
    name: str
    alias: str
    where: Span | None

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        where = "true" if self.where is None else self.cursor.cut(self.where)
        shown = Shown(text=self.cursor.text)
        with lake.transaction() as txn:
            found = edits.change(
                lake,
                txn,
                self.name,
                f"SELECT {FILE}, {POS} FROM {edits.TARGET} AS {quote(self.alias)} WHERE ({where})",
                args,
                alias=self.alias,
                shown=shown,
            )
        count = found.removed
        message = f"{count:,} {'row' if count == 1 else 'rows'} deleted from {self.name}"
        return done(lambda: lake.spark, message, {"rows": count}, snapshot=txn.snapshot)


def read(cursor: Cursor) -> Delete:
    """After DELETE FROM."""
    name = cursor.object_name("the table")
    alias = split_name(name)[1]
    if cursor.accept("AS") or cursor.word() not in ("WHERE", ""):
        alias = cursor.name("the alias")
    where = None
    if cursor.accept("WHERE"):
        where = cursor.rest()
        if where.start == where.end:
            raise cursor.fail("the condition is missing")
    cursor.end()
    return Delete(cursor=cursor, name=name, alias=alias, where=where)
