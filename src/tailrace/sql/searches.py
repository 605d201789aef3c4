"""`fulltext_search(…)` and `vector_search(…)` in a query's FROM.

Before the query is parsed, a name of the same length takes the place of each call: everything else
keeps its offset, so that errors point to what was written. The search runs here, and Spark gets its
rows. What users write reaches the index only as values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.indexes.definition import KINDS
from tailrace.sql.diagnostics import QueryText, Span, did_you_mean, in_sql
from tailrace.sql.literals import NotALiteralError, value_of
from tailrace.sql.parser import Parser, Statement, tokens_of
from tailrace.store.names import OWN_PREFIX, fold
from tailrace.store.spark_scan import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.indexes.index import Index
    from tailrace.lake import Lake

_KINDS = {f"{name}_search": kind for name, kind in KINDS.items()}
# The arguments of each function. The first two are needed, the first three need no names.
FUNCTIONS = {
    function: (
        *("index", kind.query_name, "limit", "where", "freshness", "at"),
        *(("highlight",) if kind.has_highlights else ()),
    )
    for function, kind in _KINDS.items()
}
_NEEDED, _UNNAMED = 2, 3
_TEXTS = ("index", "query", "where", "freshness")
_NUMBERS = ("limit", "at")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a call, and its place."""

    tree: exp.Expr
    span: Span

    @property
    def parameters(self) -> set[str]:
        """The `:names` in it."""
        return {str(one.this) for one in self.tree.find_all(exp.Placeholder)}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a search function."""

    query: QueryText
    function: str
    span: Span
    stand_in: str  # the name that the query has in its place
    arguments: Mapping[str, Argument]

    @property
    def parameters(self) -> set[str]:
        """The `:names` in its arguments."""
        return {name for one in self.arguments.values() for name in one.parameters}

    def error(self, message: str, argument: str | None = None, *, hint: str = "") -> InvalidError:
        """An error about the call, or about one of its arguments."""
        span = self.span if argument is None else self.arguments[argument].span
        return self.query.error_at(span, message, hint=hint)

    # --- run ---------------------------------------------------------------------------

    def frame(self, lake: Lake, args: Mapping[str, Any]) -> DataFrame:
        """The rows that the search finds: all columns of the table, and the score."""
        given = {name: self._value(name, args) for name in self.arguments}
        index = self._index(lake, given.pop("index"))
        query = given.pop(FUNCTIONS[self.function][1])
        highlight = given.pop("highlight", False)
        try:
            hits = index.find(query, **given)
            columns = [column.name for column in hits.table.columns]
            rows = index.result(hits, query, columns=columns, highlight=highlight)
        except (InvalidError, NotFoundError) as error:
            raise self.error(error.said(in_sql)) from error
        added = [name for name in rows.column_names if name not in columns]
        return local_frame(lake.runtime, rows.select([*columns, *added]))

    def _index(self, lake: Lake, name: str) -> Index:
        try:
            index = lake.find_index(name)
        except NotFoundError as error:
            known = {one.name for one in lake.indexes()}
            near = did_you_mean(name, known | {f"{one.table}.{one.name}" for one in lake.indexes()})
            hint = "SHOW INDEXES lists what there is"
            raise self.error(f"there is no index {name}{near}", "index", hint=hint) from error
        except InvalidError as error:
            raise self.error(error.said(in_sql), "index") from error
        if index.using != _KINDS[self.function].name:
            hint = _example(f"{index.using}_search", name)
            raise self.error(f"{name} is a {index.using} index", "index", hint=hint)
        return index

    def _value(self, name: str, args: Mapping[str, Any]) -> Any:
        argument = self.arguments[name]
        missing = sorted(argument.parameters - set(args))
        if missing:
            raise self.error(f"no value was given for :{missing[0]}", name)
        try:
            value = value_of(argument.tree, args)
        except NotALiteralError as error:
            hint = "a search is done before the query runs: it takes no column and no expression"
            raise self.error(
                f"the {name} has to be a literal, or a :parameter", name, hint=hint
            ) from error
        wanted = _wanted(name)
        if name == "vector":
            value = _numbers(value)
        elif not isinstance(value, wanted[0]) or (isinstance(value, bool) and name in _NUMBERS):
            value = None
        if value is None:
            raise self.error(f"the {name} has to be {wanted[1]}", name)
        return value


def _example(function: str, index: str = "name") -> str:
    return f"write {function}('{index}', {_KINDS[function].query_example}, 10)"


def _wanted(name: str) -> tuple[type, str]:
    if name in _TEXTS:
        return str, "a text"
    if name in _NUMBERS:
        return int, "a whole number"
    return (bool, "true or false") if name == "highlight" else (list, "an array of numbers")


def _numbers(value: Any) -> list[float] | None:
    """A vector from a SQL array, or from anything that a program passes as one."""
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        return [float(one) for one in value]
    except (TypeError, ValueError):
        return None


# --- finding calls -------------------------------------------------------------------------------


def calls_of(query: QueryText) -> list[Call]:
    """The calls in a query."""
    if not any(name in fold(query.sql) for name in FUNCTIONS):
        return []
    tokens, calls = tokens_of(query.sql), list[Call]()
    place = 0
    while place < len(tokens):
        end = _end_of_call(tokens, place)
        if end is not None:
            calls.append(_read(query, tokens[place : end + 1], len(calls)))
            place = end
        place += 1
    return calls


def _end_of_call(tokens: list[Token], place: int) -> int | None:
    """The index of the parenthesis that ends the call, if one begins here."""
    after = [token.text.upper() for token in tokens[place + 1 : place + 2]]
    before = tokens[place - 1].text if place else ""
    is_name = fold(tokens[place].text) in FUNCTIONS and tokens[place].token_type not in (
        TokenType.STRING, TokenType.IDENTIFIER,
    )  # fmt: skip
    if not is_name or after != ["("] or before in (".", ":"):
        return None
    depth = 0
    for end in range(place + 1, len(tokens)):
        depth += {"(": 1, ")": -1}.get(_mark(tokens[end]), 0)
        if depth == 0:
            # WITH fulltext_search(a, b) AS (SELECT …) gives a name of its own.
            follows = [token.text.upper() for token in tokens[end + 1 : end + 3]]
            return None if follows == ["AS", "("] else end
    return None  # it is never closed, which the parser says better


def _mark(token: Token) -> str:
    """The text of a token, unless it is in quotes."""
    return "" if token.token_type == TokenType.STRING else str(token.text)


def _read(query: QueryText, tokens: list[Token], number: int) -> Call:
    """Parse a call from its tokens."""
    function = fold(tokens[0].text)
    names = FUNCTIONS[function]
    example = _example(function)
    arguments: dict[str, Argument] = {}
    parser = Parser(Statement(text=query.sql, tokens=tuple(tokens[2:-1])))
    while not parser.at_end:
        start, order = parser.offset, len(arguments)
        if parser.word(1) == "=>":
            parser.upto("=>")
            given = parser.last_name
            parser.accept("=>")
            span, name = parser.upto(","), fold(given)
            if name not in names:
                message = f"{function} has no argument {given}{did_you_mean(name, names)}"
                whole = Span(start=start, end=span.end)
                raise query.error_at(whole, message, hint=f"arguments: {', '.join(names)}")
        else:
            span = parser.upto(",")
            if order >= _UNNAMED or not set(arguments) <= set(names[:order]):
                message = "this argument needs a name, as in limit => 5"
                hint = f"{example}; the others have names: {', '.join(names[_UNNAMED:])}"
                raise query.error_at(span, message, hint=hint)
            name = names[order]
        parser.accept(",")
        if name in arguments:
            raise query.error_at(span, f"the {name} is there twice")
        try:
            tree = spark_sql.parse_one(parser.cut(span))
        except ParseError as error:
            raise query.error_at(span, "this is no argument", hint=example) from error
        arguments[name] = Argument(tree=tree, span=span)
    call = Call(
        query=query,
        function=function,
        span=Span(start=tokens[0].start, end=tokens[-1].end + 1),
        stand_in=f"{OWN_PREFIX}s{number}",
        arguments=arguments,
    )
    for name in names[:_NEEDED]:
        if name not in arguments:
            raise call.error(f"{function} lacks the {name}", hint=example)
    return call


def without_calls(sql: str, calls: Iterable[Call]) -> str:
    """The query with a name in place of each call, and everything else where it was."""
    for call in calls:
        start, end = call.span.start, call.span.end
        rest = re.sub(r"[^\n]", " ", sql[start + len(call.stand_in) : end])
        sql = sql[:start] + call.stand_in + rest + sql[end:]
    return sql
