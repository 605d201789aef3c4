"""Statements about full-text and vector indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError
from tailrace.indexes.definition import KINDS
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, counted, done, exists
from tailrace.sql.statements.options import read_options
from tailrace.store.transaction import Transaction

if TYPE_CHECKING:
    from tailrace.lake import Lake

# Kinds as a statement names them, and the options of the job that keeps an index up to date.
_KINDS = {name.upper(): kind for name, kind in KINDS.items()}
_OF_A_JOB = ("trigger", "interval", "priority")


@dataclass(frozen=True, kw_only=True)
class IndexDefinition:
    """`USING FULLTEXT | VECTOR (column, …) [WITH (…)]`. The index itself checks its options."""

    parser: Parser
    name: str
    table: str
    using: str
    columns: tuple[tuple[str, Span], ...]
    options: Mapping[str, Any]
    trigger: Any
    priority: int

    def add(self, lake: Lake, txn: Transaction) -> None:
        """Create it as part of a transaction."""
        columns = [name for name, _ in self.columns]
        lake.add_index(
            txn, self.table, self.name, using=self.using, columns=columns, options=self.options,
            trigger=self.trigger, priority=self.priority,
        )  # fmt: skip

    def check_columns(self, known: Sequence[str]) -> None:
        """Checked here, where the place of a wrong name is known."""
        for name, place in self.columns:
            self.parser.known_column(name, place, known, self.table)


def _read_name(parser: Parser) -> tuple[str, str]:
    """`name ON table`."""
    name = parser.name("the index")
    parser.expect("ON")
    return name, parser.object_name("the table")


def read_create(parser: Parser) -> Run:
    """`CREATE INDEX [IF NOT EXISTS] name ON table USING …`."""
    lenient = parser.accept("IF", "NOT", "EXISTS")
    name, table = _read_name(parser)
    index = _read_definition(parser, name, table)

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if exists(lake.view, table):
            raise InvalidError(f"{table} is a view: an index is of a table")
        index.check_columns(list(lake.table(table).columns))
        if lenient and exists(lake.index, table, name):
            return done(lake, f"the index {name} on {table} exists already")
        with lake.transaction() as txn:
            index.add(lake, txn)
        message = f"index {name} on {table} created; tailrace serve, or REFRESH INDEX, builds it"
        return done(lake, message)

    return run


def read_in_table(parser: Parser, table: str) -> IndexDefinition:
    """After INDEX, among the columns of a CREATE TABLE."""
    return _read_definition(parser, parser.name("the index"), table)


def _read_definition(parser: Parser, name: str, table: str) -> IndexDefinition:
    parser.expect("USING")
    kind = _KINDS[parser.one_of(_KINDS)]
    columns = tuple(parser.columns())
    options = read_options(parser)
    options.check((*kind.option_names, *_OF_A_JOB))
    return IndexDefinition(
        parser=parser, name=name, table=table, using=kind.name, columns=columns,
        options={k: v for k, v in options.values.items() if k not in _OF_A_JOB},
        trigger=options.trigger(), priority=options.priority(),
    )  # fmt: skip


def read_drop(parser: Parser) -> Run:
    """`DROP INDEX [IF EXISTS] name ON table`."""
    lenient = parser.accept("IF", "EXISTS")
    name, table = _read_name(parser)

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if lenient and not exists(lake.index, table, name):
            return done(lake, f"there is no index {name} on {table}")
        lake.table(table)  # its error is clearer
        lake.drop_index(table, name)
        return done(lake, f"index {name} on {table} dropped")

    return run


def read_refresh(parser: Parser) -> Run:
    """`REFRESH INDEX name ON table [FULL]`."""
    name, table = _read_name(parser)
    full = parser.accept("FULL")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        lake.table(table)
        index = lake.index(table, name)
        index.wait()
        if full:
            index.rebuild()
        now = index.status()
        facts = {"watermark": now.watermark, "rows": now.rows, "segments": now.segments}
        message = (
            f"{name} on {table}: {counted(now.rows, 'row')} in "
            f"{counted(now.segments, 'segment')}, as of snapshot {now.watermark}"
        )
        return done(lake, message, facts)

    return run
