"""Expressions with Spark's meaning, said to DuckDB.

Always true: what is returned has the type that Spark gives it, and Spark's value or an error.
Rules refuse what they do not know to the last detail, so that a part of an expression that
turns its meaning around is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb import arithmetic, conditions, functions, kinds
from tailrace.spark_sql.duckdb.dates import day_of
from tailrace.spark_sql.duckdb.kinds import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    TEXT,
    DiffersError,
    Kind,
)
from tailrace.spark_sql.duckdb.typed import Rule, Say, Typed, cast, cast_tree, only

Columns = Callable[[exp.Column], Typed]


def typed(tree: exp.Expr, columns: Columns) -> Typed:
    """An expression over columns."""

    def say(part: exp.Expr | None) -> Typed:
        if part is None:
            raise DiffersError(f"something is missing in {tree.sql('spark')[:80]}")
        if isinstance(part, exp.Column):
            return columns(part)
        rule = _RULES.get(type(part))
        if rule is None:
            raise DiffersError(f"{type(part).__name__} in {part.sql('spark')[:80]}")
        return rule(part, say)

    return say(tree)


def _literal(tree: exp.Literal, _: Say) -> Typed:
    text = tree.this
    if tree.is_string:
        return Typed(exp.Literal.string(text), TEXT)
    if not text.replace(".", "", 1).isdigit():
        raise DiffersError(f"the number {text}")
    if "." in text:
        kind = kinds.literal_decimal(text)
        return Typed(cast_tree(exp.Literal.string(text), kind), kind)
    number = int(text)
    if number >= 2**63:
        raise DiffersError(f"the number {text}")
    kind = INT if number < 2**31 else BIGINT
    return Typed(cast_tree(exp.Literal.number(text), kind), kind, literal=text)


def _null(_: exp.Null, __: Say) -> Typed:
    return Typed(exp.Null(), NULL)


def _boolean(tree: exp.Boolean, _: Say) -> Typed:
    return Typed(tree.copy(), BOOLEAN)


def _paren(tree: exp.Paren, say: Say) -> Typed:
    inside = say(tree.this)
    return Typed(exp.Paren(this=inside.tree), inside.kind, inside.literal)


def _cast(tree: exp.Cast, say: Say) -> Typed:
    only(tree, {"this", "to", "_type"})
    day = day_of(tree)
    if day is not None:
        return Typed(cast_tree(exp.Literal.string(day.isoformat()), DATE), DATE)
    try:
        kind = types.parse_type(tree.to.sql("spark"))
    except InvalidError as error:
        raise DiffersError(str(error)) from error
    if kinds.is_decimal(kind) and tree.this.is_string and _is_number(tree.this.this):
        return Typed(cast_tree(exp.Literal.string(tree.this.this), kind), kind)
    value = say(tree.this)
    if not _same_cast(value.kind, kind):
        raise DiffersError(f"{value.kind} as {kind}")
    return Typed(cast(value, kind), kind)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _same_cast(a: Kind, b: Kind) -> bool:
    if b in (a, DOUBLE):
        return a in (b, NULL) or kinds.is_exact(a) or kinds.is_floating(a)
    return a == NULL or (kinds.is_exact(a) and kinds.is_exact(b) and _keeps_point(a, b))


def _keeps_point(a: Kind, b: Kind) -> bool:
    """Whether only the range is narrowed: Spark cuts off what a whole number cannot hold."""
    return kinds.is_decimal(b) or kinds.is_whole(a)


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Cast: _cast,
    exp.TryCast: _cast,  # what sqlglot makes of Spark's CAST; one that fails is left to Spark
    **arithmetic.RULES,
    **conditions.RULES,
    **functions.RULES,
}
