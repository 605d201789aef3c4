"""A user's text on its way to Spark: a query, or a condition.

Always true of a text that passed: Spark cuts it into the same words as we do (`spark_sql.grammar`),
looks up no tables in it but those that we have found (`relations`), and calls no functions but
those on the list (`spark_sql.functions`). What is in doubt is refused. All doors come through here:
SQL, deletes, views, replicas, searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import TokenError

from tailrace.errors import InvalidError
from tailrace.spark_sql.functions import ALLOWED, GRAMMAR, REFUSED, users_functions
from tailrace.spark_sql.grammar import (
    Lexeme,
    LexemeKind,
    RefusedError,
    lexemes_of,
    relations,
    without_comments,
)
from tailrace.store.names import fold
from tailrace.store.spark_session import SparkProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark replaces in a text before it reads it, by its settings or its environment.
_VARIABLE = re.compile(r"\$\{(?:\w+?:)?\S+?\}")
_OF_QUERIES = ("SELECT", "FROM", "WITH", "VALUES", "TABLE")


def check_query(text: str, tree: exp.Expr) -> tuple[Lexeme, ...]:
    """Refuse what must not reach Spark of a query without comments, which has this tree.

    Returns the functions that are none of Spark's: see `check_registered`.
    """
    words = lexemes_of(text)
    if not isinstance(tree, exp.Query | exp.Values) or tree.find(exp.DML):
        raise RefusedError("this is not a query", end=len(text))
    unknown = _check(text, words, tree)
    seen = {
        _parts(table)[0].meta.get("start")
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
    }
    for word in relations(words):
        if word.start not in seen:
            raise _unseen(word)
    return unknown


def check_printed(tree: exp.Expr) -> None:
    """Refuse what must not reach Spark of a tree, which passed, as sqlglot writes it."""
    try:
        text = tree.sql("spark")
    except RecursionError as error:
        raise InvalidError("the query is nested too deeply") from error
    words = lexemes_of(text)
    _check(text, words, tree)
    seen = {_parts(table)[0].name for table in tree.find_all(exp.Table)}
    for word in relations(words):
        if word.name not in seen:
            raise _unseen(word)


def named_tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables of a query that no WITH around them gives its name, and that are no functions."""
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
        and not table.find_ancestor(exp.Hint)  # an alias
        and _given_by(table) is None
    ]


def spelled_otherwise(tree: exp.Expr) -> Iterator[tuple[exp.Table, str]]:
    """Tables that a WITH gives their name, but for large and small letters, and that name."""
    for table in tree.find_all(exp.Table):
        given = _given_by(table) if isinstance(table.this, exp.Identifier) else None
        if given is not None and given != table.name:
            yield table, given


def _given_by(table: exp.Table) -> str | None:
    """The name that a WITH around a table has for it."""
    if table.args.get("db") is not None:
        return None
    name = fold(table.name)
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        found = above.args.get("with_") or above.args.get("with")
        if isinstance(above, exp.With):
            # Inside of a WITH, what was named before is known, and with RECURSIVE also itself.
            for cte in above.expressions:
                if cte is below and not above.args.get("recursive"):
                    break
                if fold(cte.alias) == name:
                    return str(cte.alias)
        elif found is not None and found is not below:
            names = {fold(cte.alias): str(cte.alias) for cte in found.expressions}
            if name in names:
                return names[name]
        below, above = above, above.parent
    return None


def check_condition(spark: SparkProvider, condition: str, *, of: str) -> str:
    """A condition about one row of a table, as Spark may get it."""
    try:
        text = without_comments(condition)
        words = lexemes_of(text)
        for before, word in pairwise(words):
            opens = before.text == "(" and word.keyword in _OF_QUERIES
            if opens or (before.keyword == "TABLE" and word.text == "("):
                raise word.refused("it must be about one row, without subqueries")
        check_registered(spark, _check(text, words))
    except TokenError as error:
        reason = "a text, a name or a comment in it has no end"
        raise InvalidError(f"{of}: cannot use {condition!r}: {reason}") from error
    except RefusedError as error:
        raise InvalidError(f"{of}: cannot use {condition!r}: {error}") from error
    return text


def check_registered(spark: SparkProvider, functions: Iterable[Lexeme]) -> None:
    """Refuse functions that are not the operator's own, registered in the session."""
    unknown = list(functions)
    known = users_functions(spark()) if unknown else set()
    for word in unknown:
        if word.name.lower() not in known:
            raise word.refused(
                f"there is no function {word.name}() on the list of those that may be called",
                hint="register your own with spark.udf.register",
            )


def check_settings(session: SparkSession, text: str, tree: exp.Expr | None = None) -> None:
    """Refuse what a session's settings give another meaning than it has here."""
    quotes, letters = "spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.caseSensitive"
    if '"' in text and _is_set(session, quotes):
        raise InvalidError(
            f"{quotes} is set, and gives \"…\" another meaning than here: write '…' for a text, "
            "`…` for a name"
        )
    for table, given in spelled_otherwise(tree) if tree is not None else ():
        if _is_set(session, letters):
            raise InvalidError(f"{letters} is set: write {given} instead of {table.name}")


def _is_set(session: SparkSession, setting: str) -> bool:
    return str(session.conf.get(setting, "false")).lower() == "true"


def _parts(table: exp.Table) -> list[exp.Expr]:
    """The words of a table's name."""
    parts = (table.args.get("catalog"), table.args.get("db"), table.this)
    return [part for part in parts if part is not None]


def _unseen(word: Lexeme) -> RefusedError:
    return word.refused(
        f"Spark may take {word.text} for a table here",
        hint="put a column that is called like a keyword in backticks",
    )


def _check(text: str, words: list[Lexeme], tree: exp.Expr | None = None) -> tuple[Lexeme, ...]:
    variable = _VARIABLE.search(text)
    if variable is not None:
        raise RefusedError(
            "Spark would put a setting of its own in place of ${…}",
            start=variable.start(),
            end=variable.end(),
            hint="write '$' || '{…}', or pass the text as a parameter",
        )
    for before, word in pairwise(words):
        if before.keyword == "USING" and word.kind is LexemeKind.STRING:
            raise before.refused("a query cannot run a program", upto=word)
        if before.keyword == "INSERT" and word.keyword in ("INTO", "OVERWRITE"):
            raise before.refused("this is not a query", upto=word)
    tables = tree.find_all(exp.TableAlias) if tree is not None else ()
    aliases = {alias.name.lower() for alias in tables if alias.args.get("columns")}
    return tuple(word for word in _unknown(words) if word.name.lower() not in aliases)


def _unknown(words: list[Lexeme]) -> Iterator[Lexeme]:
    """Functions that are none of Spark's; those of Spark's that are not allowed are refused."""
    for place, (word, after) in enumerate(pairwise(words)):
        if after.text != "(" or not word.is_name:
            continue
        name = word.name.lower()
        if place and words[place - 1].text == ".":
            raise word.refused(
                f"{name}() is named with a schema", hint="call a function by its name alone"
            )
        if name == "identifier":
            raise word.refused("IDENTIFIER(…) is refused", hint="write the name itself")
        if name in REFUSED:
            raise word.refused(f"the function {name}() is refused: it {REFUSED[name]}")
        if name not in ALLOWED and word.keyword not in GRAMMAR:
            yield word
