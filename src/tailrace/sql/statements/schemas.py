"""CREATE SCHEMA, DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, done
from tailrace.store.names import fold

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class CreateSchema:
    """`CREATE SCHEMA [IF NOT EXISTS] name`."""

    name: str
    if_not_exists: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_not_exists and fold(self.name) in map(fold, lake.schemas()):
            return done(lake, f"the schema {self.name} exists already")
        snapshot = lake.create_schema(self.name)
        return done(lake, f"schema {self.name} created", snapshot=snapshot)


@dataclass(frozen=True, kw_only=True)
class DropSchema:
    """`DROP SCHEMA [IF EXISTS] name`."""

    name: str
    if_exists: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_exists and fold(self.name) not in map(fold, lake.schemas()):
            return done(lake, f"there is no schema {self.name}")
        snapshot = lake.drop_schema(self.name)
        return done(lake, f"schema {self.name} dropped", snapshot=snapshot)


def read_create(parser: Parser) -> CreateSchema:
    """After CREATE SCHEMA."""
    lenient = parser.accept("IF", "NOT", "EXISTS")
    return CreateSchema(name=parser.name("the schema"), if_not_exists=lenient)


def read_drop(parser: Parser) -> DropSchema:
    """After DROP SCHEMA."""
    lenient = parser.accept("IF", "EXISTS")
    return DropSchema(name=parser.name("the schema"), if_exists=lenient)
