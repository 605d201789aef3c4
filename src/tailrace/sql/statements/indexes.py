"""Statements about indexes: read in full, and refused until there are indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.errors import InvalidError
from tailrace.sql.cursor import Cursor
from tailrace.sql.door import Door
from tailrace.sql.result import Result
from tailrace.sql.statements.options import Options, read_options

KINDS = ("FULLTEXT", "VECTOR")
_NOT_YET = "indexes are not available yet in this version"


@dataclass(frozen=True, kw_only=True)
class CreateIndex:
    """`CREATE INDEX name ON table USING FULLTEXT | VECTOR (column, …) [WITH (…)]`."""

    name: str
    table: str
    using: str
    columns: tuple[str, ...]
    options: Options

    def run(self, door: Door, _args: Mapping[str, Any]) -> Result:
        door.table(self.table)
        raise InvalidError(f"{_NOT_YET}: {self.name} on {self.table} was not created")


@dataclass(frozen=True, kw_only=True)
class DropIndex:
    """`DROP INDEX name ON table`."""

    name: str
    table: str

    def run(self, door: Door, _args: Mapping[str, Any]) -> Result:
        door.table(self.table)
        raise InvalidError(f"{_NOT_YET}: there is no index {self.name} on {self.table}")


def read_create(cursor: Cursor) -> CreateIndex:
    """After CREATE INDEX."""
    name = cursor.name("the index")
    cursor.expect("ON")
    table = cursor.object_name("the table")
    cursor.expect("USING")
    using = cursor.one_of(KINDS)
    columns = [name for name, _ in cursor.columns()]
    options = read_options(cursor)
    cursor.end()
    return CreateIndex(name=name, table=table, using=using, columns=tuple(columns), options=options)


def read_drop(cursor: Cursor) -> DropIndex:
    """After DROP INDEX."""
    name = cursor.name("the index")
    cursor.expect("ON")
    made = DropIndex(name=name, table=cursor.object_name("the table"))
    cursor.end()
    return made
