"""MERGE INTO: one join decides what happens to each row of both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.spark_sql.functions import NONDETERMINISTIC
from tailrace.spark_sql.types import quote
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, done
from tailrace.sql.statements.edits import (
    COMES,
    TARGET,
    Assignment,
    change,
    new_values,
    read_alias,
    read_sets,
)
from tailrace.store.names import split_name
from tailrace.store.schema import FILE, POS, STORE_PREFIX, TableInfo

if TYPE_CHECKING:
    from tailrace.lake import Lake

# Marks the rows of the source, among those of the join.
_FROM_SOURCE = f"{STORE_PREFIX}source"
_RANDOM = re.compile(rf"\b({'|'.join(sorted(NONDETERMINISTIC))})\s*\(", re.IGNORECASE)
_MATCHED, _BY_TARGET, _BY_SOURCE = "matched", "not matched", "not matched by source"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """`WHEN … THEN …`."""

    when: str  # which rows: _MATCHED, _BY_TARGET or _BY_SOURCE
    condition: Span | None
    action: str  # UPDATE, DELETE or INSERT
    sets: Sequence[Assignment] = ()  # none: all columns, from the source's of the same names


@dataclass(frozen=True, kw_only=True)
class Merge:
    """`MERGE INTO table [AS t] USING source [AS s] ON condition WHEN … THEN … …`."""

    parser: Parser
    name: str
    alias: str
    source: str  # what follows USING, without its alias
    source_alias: str
    on: Span
    clauses: tuple[Clause, ...]

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            table = txn.info(self.name)
            query = self.parser.put_together(self._sql(table))
            edited = change(lake, txn, self.name, query, args, alias=self.alias)
        message = f"{self.name}: {edited.removed:,} rows went, {edited.added:,} rows came"
        facts = {"removed": edited.removed, "added": edited.added}
        return done(lake, message, facts, snapshot=txn.snapshot)

    def _sql(self, table: TableInfo) -> str:
        target, source = quote(self.alias), quote(self.source_alias)
        conditions = [self._condition(clause) for clause in self.clauses]
        comes = [
            c for c, one in zip(conditions, self.clauses, strict=True) if one.action != "DELETE"
        ]
        items = [
            f"{target}.{FILE}",
            f"{target}.{POS}",
            f"COALESCE({' OR '.join(f'({c})' for c in comes) or 'false'}, false) AS {COMES}",
        ]
        values = [self._values(table, clause) for clause in self.clauses]
        for column in table.columns:
            cases = " ".join(
                f"WHEN {condition} THEN {new[column.name]}"
                for condition, new in zip(conditions, values, strict=True)
            )
            items.append(f"CASE {cases} END AS {quote(column.name)}")
        join = {
            (False, False): "INNER", (True, False): "RIGHT", (False, True): "LEFT",
            (True, True): "FULL",
        }[self._has(_BY_TARGET), self._has(_BY_SOURCE)]  # fmt: skip
        any_of = " OR ".join(f"({condition})" for condition in conditions)
        return (
            f"SELECT {', '.join(items)} FROM {TARGET} AS {target} {join} JOIN "
            f"(SELECT *, true AS {_FROM_SOURCE} FROM {self.source}) AS {source} "
            f"ON ({self.parser.cut(self.on)}) WHERE {any_of}"
        )

    def _has(self, when: str) -> bool:
        return any(clause.when == when for clause in self.clauses)

    def _condition(self, clause: Clause) -> str:
        """Whether a clause is the one for a row: the first of its kind whose condition holds."""
        target, source = quote(self.alias), quote(self.source_alias)
        there = f"{target}.{FILE} IS NOT NULL"
        given = f"COALESCE({source}.{_FROM_SOURCE}, false)"
        parts = {
            _MATCHED: [there, given],
            _BY_TARGET: [f"NOT ({there})", given],
            _BY_SOURCE: [there, f"NOT {given}"],
        }[clause.when]
        for other in self.clauses:
            if other is clause:
                break
            if other.when == clause.when:
                parts.append(f"NOT COALESCE(({self._own(other)}), false)")
        return " AND ".join([*parts, f"COALESCE(({self._own(clause)}), false)"])

    def _own(self, clause: Clause) -> str:
        return "true" if clause.condition is None else self.parser.cut(clause.condition)

    def _values(self, table: TableInfo, clause: Clause) -> dict[str, str]:
        """The new value of each column."""
        target, source = quote(self.alias), quote(self.source_alias)
        columns = [column.name for column in table.columns]
        if clause.action == "DELETE":
            return dict.fromkeys(columns, "NULL")
        if not clause.sets:
            return {name: f"{source}.{quote(name)}" for name in columns}
        given = new_values(self.parser, table, clause.sets)
        kept = "NULL" if clause.action == "INSERT" else None
        return {
            name: f"({self.parser.cut(given[name])})"
            if name in given
            else kept or f"{target}.{quote(name)}"
            for name in columns
        }


def read(parser: Parser) -> Run:
    """After MERGE INTO."""
    name = parser.object_name("the table")
    alias = read_alias(parser, "USING") or split_name(name)[1]
    parser.expect("USING")
    source, source_alias = _source(parser)
    parser.expect("ON")
    on = parser.upto("WHEN", what="the condition")
    clauses = []
    while not parser.at_end:
        clauses.append(_clause(parser))
    if not clauses:
        parser.expect("WHEN")
    return Merge(
        parser=parser, name=name, alias=alias, source=source, source_alias=source_alias, on=on,
        clauses=tuple(clauses),
    ).run  # fmt: skip


def _source(parser: Parser) -> tuple[str, str]:
    start = parser.offset
    if parser.word() == "(":
        parser.inside()
        own = None
        text = parser.cut(Span(start=start, end=parser.last_end))
        text = f"{text} AS {quote('q')}"
    else:
        own = split_name(parser.object_name("the source"))[1]
        text = parser.cut(Span(start=start, end=parser.last_end))
    alias = read_alias(parser, "ON") or own
    if alias is None:
        raise parser.fail("the source needs a name", hint="write USING (SELECT …) AS source ON …")
    return text, alias


def _clause(parser: Parser) -> Clause:
    parser.expect("WHEN")
    if parser.accept("MATCHED"):
        when = _MATCHED
    else:
        parser.expect("NOT", "MATCHED")
        when = _BY_TARGET
        if parser.accept("BY", "SOURCE"):
            when = _BY_SOURCE
        else:
            parser.accept("BY", "TARGET")
    condition = _condition(parser) if parser.accept("AND") else None
    parser.expect("THEN")
    if when == _BY_TARGET:
        parser.expect("INSERT")
        return Clause(when=when, condition=condition, action="INSERT", sets=_inserted(parser))
    if parser.one_of(("UPDATE", "DELETE")) == "DELETE":
        return Clause(when=when, condition=condition, action="DELETE")
    parser.expect("SET")
    sets: Sequence[Assignment] = ()
    if when == _BY_SOURCE or not parser.accept("*"):
        sets = read_sets(parser, "WHEN")
    return Clause(when=when, condition=condition, action="UPDATE", sets=sets)


def _condition(parser: Parser) -> Span:
    """A clause's condition. It is evaluated more than once a row, so it must not be random."""
    span = parser.upto("THEN", what="the condition")
    random = _RANDOM.search(parser.cut(span))
    if random is not None:
        place = Span(start=span.start + random.start(), end=span.start + random.end() - 1)
        hint = "compute it in the source: USING (SELECT …, rand() AS dice FROM …) AS s"
        raise parser.refuse(place, "a condition of MERGE cannot be random", hint=hint)
    return span


def _inserted(parser: Parser) -> tuple[Assignment, ...]:
    if parser.accept("*"):
        return ()
    columns = parser.columns()
    parser.expect("VALUES", "(")
    values = parser.each(lambda: parser.upto(",", what="a value"))
    if len(values) != len(columns):
        raise parser.fail(f"{len(values)} values are given for {len(columns)} columns")
    parser.expect(")")
    return tuple(
        Assignment(column=name, place=place, value=value)
        for (name, place), value in zip(columns, values, strict=True)
    )
