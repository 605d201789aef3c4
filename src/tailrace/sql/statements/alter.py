"""ALTER TABLE: add, drop, rename and widen columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, done
from tailrace.sql.statements.columns import read_type
from tailrace.store.table import Table

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Alter:
    """`ALTER TABLE name …`."""

    name: str
    what: str  # for the message
    changes: tuple[Callable[[Table], Any], ...]

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            for change in self.changes:
                change(txn.table(self.name))
        return done(lake, f"{self.name}: {self.what}", snapshot=txn.snapshot)


def read(parser: Parser) -> Alter:
    """After ALTER TABLE."""
    name = parser.object_name("the table")
    if parser.accept("ADD"):
        return _add(parser, name)
    if parser.accept("DROP"):
        parser.expect("COLUMN")
        column = parser.name("the column")
        change = _call("drop_column", column)
        return Alter(name=name, what=f"column {column} dropped", changes=(change,))
    if parser.accept("RENAME", "COLUMN"):
        old = parser.name("the column")
        parser.expect("TO")
        new = parser.name("the column")
        change = _call("rename_column", old, new)
        return Alter(name=name, what=f"column {old} is {new} now", changes=(change,))
    if parser.accept("ALTER", "COLUMN"):
        column = parser.name("the column")
        parser.expect("TYPE")
        kind = read_type(parser)
        change = _call("widen_column", column, kind)
        return Alter(name=name, what=f"column {column} is {kind} now", changes=(change,))
    if parser.word() == "RENAME":
        raise parser.fail(hint="a table keeps its name: create another and INSERT INTO it")
    raise parser.fail()


def _add(parser: Parser, name: str) -> Alter:
    several = parser.accept("COLUMNS")
    if not several:
        parser.expect("COLUMN")
    bracket = parser.accept("(") if several else False
    changes, added = [], []
    while True:
        column = parser.name("the column")
        kind = read_type(parser, "NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER")
        if parser.word() in ("NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER"):
            raise parser.fail(hint="a new column is the last one, and NULL in the rows that exist")
        changes.append(_call("add_column", column, kind))
        added.append(column)
        if not several or not parser.accept(","):
            break
    if bracket:
        parser.expect(")")
    what = f"column {added[0]} added" if len(added) == 1 else f"columns {', '.join(added)} added"
    return Alter(name=name, what=what, changes=tuple(changes))


def _call(method: str, *args: str) -> Callable[[Table], Any]:
    return lambda table: getattr(table, method)(*args)
