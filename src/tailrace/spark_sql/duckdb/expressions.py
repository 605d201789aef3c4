"""Translates Spark's expressions to DuckDB's.

Always true: what is returned has the type that Spark gives it, and Spark's value or an error.
Rules refuse what they do not know to the last detail, so that a part of an expression that
turns its meaning around is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb import arithmetic, conditions, functions, type_rules
from tailrace.spark_sql.duckdb.dates import day_of
from tailrace.spark_sql.duckdb.translated import Rule, Translate, Translated, cast, cast_tree, only
from tailrace.spark_sql.duckdb.type_rules import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    TEXT,
    DataType,
    DiffersError,
)

Columns = Callable[[exp.Column], Translated]


def translate(tree: exp.Expr, columns: Columns) -> Translated:
    """An expression over columns, whose translations `columns` gives."""

    def translate_part(part: exp.Expr | None) -> Translated:
        if part is None:
            raise DiffersError(f"something is missing in {tree.sql('spark')[:80]}")
        if isinstance(part, exp.Column):
            return columns(part)
        rule = _RULES.get(type(part))
        if rule is None:
            raise DiffersError(f"{type(part).__name__} in {part.sql('spark')[:80]}")
        return rule(part, translate_part)

    return translate_part(tree)


def _literal(tree: exp.Literal, _: Translate) -> Translated:
    text = tree.this
    if tree.is_string:
        return Translated(exp.Literal.string(text), TEXT)
    if not text.replace(".", "", 1).isdigit():
        raise DiffersError(f"the number {text}")
    if "." in text:
        kind = type_rules.literal_decimal(text)
        return Translated(cast_tree(exp.Literal.string(text), kind), kind)
    number = int(text)
    if number >= 2**63:
        raise DiffersError(f"the number {text}")
    kind = INT if number < 2**31 else BIGINT
    return Translated(cast_tree(exp.Literal.number(text), kind), kind, literal=text)


def _null(_: exp.Null, __: Translate) -> Translated:
    return Translated(exp.Null(), NULL)


def _boolean(tree: exp.Boolean, _: Translate) -> Translated:
    return Translated(tree.copy(), BOOLEAN)


def _paren(tree: exp.Paren, translate: Translate) -> Translated:
    inside = translate(tree.this)
    return Translated(exp.Paren(this=inside.tree), inside.type, inside.literal)


def _cast(tree: exp.Cast, translate: Translate) -> Translated:
    only(tree, {"this", "to", "_type"})
    day = day_of(tree)
    if day is not None:
        return Translated(cast_tree(exp.Literal.string(day.isoformat()), DATE), DATE)
    try:
        kind = types.parse_type(tree.to.sql("spark"))
    except InvalidError as error:
        raise DiffersError(str(error)) from error
    if type_rules.is_decimal(kind) and tree.this.is_string and _is_number(tree.this.this):
        return Translated(cast_tree(exp.Literal.string(tree.this.this), kind), kind)
    value = translate(tree.this)
    if not _same_cast(value.type, kind):
        raise DiffersError(f"{value.type} as {kind}")
    return Translated(cast(value, kind), kind)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _same_cast(a: DataType, b: DataType) -> bool:
    if b in (a, DOUBLE):
        return a in (b, NULL) or type_rules.is_exact(a) or type_rules.is_floating(a)
    return a == NULL or (type_rules.is_exact(a) and type_rules.is_exact(b) and _keeps_point(a, b))


def _keeps_point(a: DataType, b: DataType) -> bool:
    """Whether only the range is narrowed: Spark cuts off what a whole number cannot hold."""
    return type_rules.is_decimal(b) or type_rules.is_whole(a)


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
