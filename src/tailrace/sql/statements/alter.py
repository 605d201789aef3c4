"""ALTER TABLE: columns come, go, and get other names or wider types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql.cursor import Cursor
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
        return done(lambda: lake.spark, f"{self.name}: {self.what}", snapshot=txn.snapshot)


def read(cursor: Cursor) -> Alter:
    """After ALTER TABLE."""
    name = cursor.object_name("the table")
    if cursor.accept("ADD"):
        made = _add(cursor, name)
    elif cursor.accept("DROP"):
        cursor.expect("COLUMN")
        column = cursor.name("the column")
        change = _call("drop_column", column)
        made = Alter(name=name, what=f"column {column} dropped", changes=(change,))
    elif cursor.accept("RENAME", "COLUMN"):
        old = cursor.name("the column")
        cursor.expect("TO")
        new = cursor.name("the column")
        change = _call("rename_column", old, new)
        made = Alter(name=name, what=f"column {old} is {new} now", changes=(change,))
    elif cursor.accept("ALTER", "COLUMN"):
        column = cursor.name("the column")
        cursor.expect("TYPE")
        kind = read_type(cursor)
        change = _call("widen_column", column, kind)
        made = Alter(name=name, what=f"column {column} is {kind} now", changes=(change,))
    elif cursor.word() == "RENAME":
        raise cursor.fail(hint="a table keeps its name: create another and INSERT INTO it")
    else:
        raise cursor.fail()
    cursor.end()
    return made


def _add(cursor: Cursor, name: str) -> Alter:
    several = cursor.accept("COLUMNS")
    if not several:
        cursor.expect("COLUMN")
    bracket = cursor.accept("(") if several else False
    changes, added = [], []
    while True:
        column = cursor.name("the column")
        kind = read_type(cursor, "NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER")
        if cursor.word() in ("NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER"):
            raise cursor.fail(hint="a new column is the last one, and NULL in the rows that exist")
        changes.append(_call("add_column", column, kind))
        added.append(column)
        if not several or not cursor.accept(","):
            break
    if bracket:
        cursor.expect(")")
    what = f"column {added[0]} added" if len(added) == 1 else f"columns {', '.join(added)} added"
    return Alter(name=name, what=what, changes=tuple(changes))


def _call(method: str, *args: str) -> Callable[[Table], Any]:
    return lambda table: getattr(table, method)(*args)
