"""A view's query as written: its tree, what it names, and the functions of time that it calls.

Always true: the result of `parse` is shared by all who parse the same text. To change its tree,
copy it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.errors import InvalidError
from tailrace.lru import LruCache
from tailrace.spark_sql.functions import DAY, INSTANT, called, is_moment
from tailrace.spark_sql.grammar import Lexeme, without_comments
from tailrace.store.names import fold, quoted_name
from tailrace.store.spark_text import check_query, named_tables, spelled_otherwise
from tailrace.views.query.trees import balanced, size

TOO_DEEP = "the query is nested too deeply"
# Parts of trees that are kept: about half a kilobyte each.
_KEPT = 100_000
# For any moment, where only the shape of a query matters.
SOME_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
# sqlglot takes `window` for the clause WINDOW, even where a parenthesis follows.
READABLE = "tailrace_window"


@dataclass(frozen=True, kw_only=True, eq=False)
class Parsed:
    """One query in Spark SQL."""

    tree: exp.Query
    functions: tuple[Lexeme, ...]  # that it calls, except Spark's own
    tables: tuple[tuple[str, str], ...]  # schema and name of each that it reads
    moments: tuple[str, ...]  # the functions of time that it calls


_parsed: LruCache[Parsed] = LruCache(_KEPT, lambda parsed: size(parsed.tree))


def parse(text: object) -> Parsed:
    """Read a query; InvalidError if it is none."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidError("a view needs a query: SELECT …")
    return _parsed.get(text) or _parsed.put(text, parse_anew(text))


def parse_anew(text: str) -> Parsed:
    """Read a query for the caller alone, at the present depth of the stack."""
    try:
        plain = with_readable_windows(without_comments(text))
        trees = spark_sql.parse(plain)
    except sqlglot.errors.SqlglotError as error:
        first = (getattr(error, "errors", None) or [{"description": str(error)}])[0]
        where = f" at line {first['line']}, column {first['col']}" if first.get("line") else ""
        raise InvalidError(f"cannot read the query: {first['description']}{where}") from error
    except spark_sql.TooDeepError as error:
        raise InvalidError(f"{TOO_DEEP}: {spark_sql.LIMIT}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidError("a view is one query: SELECT …, or WITH … SELECT …")
    tree = trees[0]
    functions = tuple(word for word in check_query(plain, tree) if word.text != READABLE)
    for table, spelling in list(spelled_otherwise(tree)):
        table.this.set("this", spelling)  # a session may tell large letters from small ones
    restore_windows(tree)
    for call in list(tree.find_all(exp.Localtimestamp)):
        # Without parentheses, as sqlglot would write it, it would be a column.
        call.replace(exp.Anonymous(this="localtimestamp", expressions=[]))
    if tree.find(exp.Into, exp.Placeholder, exp.Parameter):
        raise InvalidError("a view's query has no INTO and no parameters")
    tree = balanced(tree)
    names = {table_key(table): table_name(table) for table in tables_in(tree)}
    return Parsed(
        tree=tree, functions=functions, tables=tuple(names.values()), moments=moments_in(tree)
    )


def tables_in(tree: exp.Query) -> list[exp.Table]:
    """The tables that a query reads, without those that a WITH defines."""
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise InvalidError(f"{table.sql('spark')[:60]} is not a table of the lake")
    return named_tables(tree)


def table_name(table: exp.Table) -> tuple[str, str]:
    """Schema and name."""
    if table.catalog:
        raise InvalidError(f"{table.sql('spark')}: name a table by its schema and name")
    return table.db or "main", table.name


def table_key(table: exp.Table) -> str:
    """The same for all references to a table, whatever their case."""
    return fold(quoted_name(*table_name(table)))


def with_tables(tree: exp.Query, rename: Callable[[str], str]) -> exp.Query:
    """A query over other relations: `rename` gives the new name for a table's key."""
    renamed = tree.copy()
    for table in tables_in(renamed):
        key = table_key(table)
        if not table.args.get("alias"):
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("db", None)
        table.set("this", exp.to_identifier(rename(key)))
    return renamed


def with_readable_windows(text: str) -> str:
    """A query that calls the function by a name that sqlglot reads everywhere."""
    try:
        tokens = spark_sql.tokenize(text)
    except sqlglot.errors.SqlglotError:
        return text  # the parser says what is wrong
    places = [
        (token.start, token.end + 1)
        for token, following in pairwise(tokens)
        if token.text.lower() == "window" and following.text == "("
    ]
    for start, end in reversed(places):
        text = text[:start] + READABLE + text[end:]
    return text


def restore_windows(tree: exp.Expr) -> None:
    """Give the function its own name back."""
    for call in tree.find_all(exp.Anonymous):
        if call.name == READABLE:
            call.set("this", "window")


# --- functions of time ----------------------------------------------------------------------
# They are fixed for a refresh; when they have moved on, the view has to be refreshed.


def moments_in(tree: exp.Expr) -> tuple[str, ...]:
    """The names of the functions of time that a query calls."""
    return tuple(sorted({name for _, name in _calls(tree)}))


def fix_moments(tree: exp.Expr, moment: datetime) -> None:
    """Replace the functions of time by a moment's values."""
    for call, name in list(_calls(tree)):
        if name in DAY:
            call.replace(exp.cast(exp.Literal.string(moment.date().isoformat()), "date"))
            continue
        instant = exp.cast(exp.Literal.string(moment.isoformat(" ")), "timestamp")
        if name == "localtimestamp":  # in the session's time zone
            instant = exp.cast(instant, "timestamp_ntz", dialect="spark")
        call.replace(instant)


def _calls(tree: exp.Expr) -> Iterator[tuple[exp.Func, str]]:
    """The calls, each with Spark's name of it."""
    for call in tree.find_all(exp.Func):
        name = called(call)
        if name in DAY:
            yield call, name
        elif name in INSTANT and is_moment(call):
            # sqlglot reads unix_timestamp() as this.
            yield call, "unix_timestamp" if isinstance(call.parent, exp.StrToUnix) else name


def moment_text(moments: tuple[str, ...], moment: datetime) -> str:
    """A moment as a view's functions see it: the same for as long as their values are."""
    if not moments:
        return ""
    return str(moment.date()) if set(moments) <= DAY else moment.isoformat()
