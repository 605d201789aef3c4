"""The tables that a query names, and the query with other names in their place.

Only names are replaced: all else stays letter by letter, so that a query means what Spark says it
means.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.spark_sql import types
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import tokens_of
from tailrace.store.names import fold, quoted_name
from tailrace.store.spark_text import named_tables

_WORDS_OF_A_VERSION = ("FOR", "VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME", "AS", "OF")
_OPERATORS = ("+", "-", "*", "/", "||")
# Where a piece of the query begins and ends, and what stands in its place.
_Edit: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True)
class TableReference:
    """A table that a query names."""

    tree: exp.Table
    schema: str | None
    name: str
    span: Span  # of the name
    version: tuple[str, str] | None  # VERSION or TIMESTAMP, and what literal is after AS OF
    end: int  # of what says the version
    alias_at: int  # where an alias goes: behind a TABLESAMPLE (…)

    @property
    def full_name(self) -> str:
        return quoted_name(self.schema or "main", self.name)


def references(sql: str, tree: exp.Expr) -> Iterator[TableReference]:
    """The tables that a query names, in no special order."""
    tokens = tokens_of(sql)
    places = {token.end: place for place, token in enumerate(tokens)}
    for table in named_tables(tree):
        name, schema = table.this, table.args.get("db")
        parts = (table.args.get("catalog"), schema, name)
        first = next(part for part in parts if part is not None)
        span = Span(start=first.meta["start"], end=name.meta["end"] + 1)
        place = places[name.meta["end"]]
        version, end = _version(tokens, place + 1)
        yield TableReference(
            tree=table,
            schema=None if schema is None else schema.name,
            name=name.name,
            span=span,
            version=version,
            end=end,
            alias_at=_after_sample(tokens, place, end),
        )


def substituted(
    sql: str,
    tree: exp.Expr,
    stand_ins: Sequence[tuple[TableReference, str]],
    *,
    aliases: Mapping[str, str],
    known_as: Iterable[tuple[str, str]] = (),
) -> str:
    """The query with `{stand-in}` for each table, under the name that it had.

    `aliases` are other names that tables had, by those that they have in the query; `known_as`
    are schemas and names of tables that columns may name, too.
    """
    edits: list[_Edit] = []
    plain = {_folded(*name) for name in known_as}
    for reference, stand_in in stand_ins:
        edits.append((reference.span.start, reference.end, f"{{{stand_in}}}"))
        if reference.tree.args.get("alias") is None:
            alias = _escaped(types.quote(aliases.get(reference.name, reference.name)))
            edits.append((reference.alias_at, reference.alias_at, f" AS {alias}"))
            plain.add(_folded(reference.schema or "main", reference.name))
    edits += _without_schemas(tree, plain)
    return _edited(sql, edits)


def _folded(schema: str, name: str) -> tuple[str, str]:
    return fold(schema), fold(name)


def _without_schemas(tree: exp.Expr, plain: set[tuple[str, str]]) -> Iterator[_Edit]:
    """`sales.orders.id` is `orders.id` once the table stands under its alias."""
    for column in tree.find_all(exp.Column):
        # With a field of a struct, sqlglot calls the schema a catalog.
        parts = [column.args.get(name) for name in ("catalog", "db", "table")]
        for schema, table in itertools.pairwise(part for part in parts if part is not None):
            if "start" in schema.meta and (fold(schema.name), fold(table.name)) in plain:
                yield schema.meta["start"], table.meta["start"], ""
                break


def _version(tokens: list[Token], place: int) -> tuple[tuple[str, str] | None, int]:
    """What follows a table's name to say when, and where that ends."""
    until = tokens[place - 1].end + 1
    words = []
    while place < len(tokens) and tokens[place].text.upper() in _WORDS_OF_A_VERSION:
        words.append(tokens[place].text.upper())
        place += 1
    if len(words) < 3 or words[-2:] != ["AS", "OF"] or place >= len(tokens):
        return None, until
    value, after = tokens[place], "".join(token.text for token in tokens[place + 1 : place + 2])
    is_literal = value.token_type in (TokenType.NUMBER, TokenType.STRING)
    text = value.text if is_literal and after not in _OPERATORS else ""
    return (words[-3], text), value.end + 1


def _after_sample(tokens: list[Token], place: int, until: int) -> int:
    """An alias comes after a TABLESAMPLE (…)."""
    rest = [token for token in tokens[place:] if token.start >= until]
    if not rest or rest[0].text.upper() != "TABLESAMPLE":
        return until
    depth = 0
    for token, after in zip(rest[1:], [*rest[2:], None], strict=True):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        more = after is not None and after.text.upper() in ("REPEATABLE", "(")
        if depth == 0 and token.text == ")" and not more:
            return token.end + 1
    return until


def _edited(source: str, edits: list[_Edit]) -> str:
    """The query with pieces replaced. Braces of the user's own are doubled, as Spark wants it."""
    pieces, place = [], 0
    for start, end, new in sorted(edits):
        pieces += [_escaped(source[place:start]), new]
        place = end
    pieces.append(_escaped(source[place:]))
    return "".join(pieces)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
