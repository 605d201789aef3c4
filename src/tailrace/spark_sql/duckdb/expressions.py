"""Translates Spark's expressions to DuckDB's: literals, casts, functions of a row, and aggregates.

Always true: what is returned has the type that Spark gives it, and Spark's value or an error.
Rules refuse what they do not know to the last detail, so that a part of an expression that
turns its meaning around is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb import operators, type_rules
from tailrace.spark_sql.duckdb.operators import divided_exactly
from tailrace.spark_sql.duckdb.translated import (
    Rule,
    Translate,
    Translated,
    apply,
    call,
    cast,
    cast_tree,
    day_of,
    failure,
    literal_day,
    only,
    plain_zero,
    typed,
)
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
        return typed(exp.Literal.string(text), kind)
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
        return literal_day(day)
    try:
        kind = types.parse_type(tree.to.sql("spark"))
    except InvalidError as error:
        raise DiffersError(str(error)) from error
    if type_rules.is_decimal(kind) and tree.this.is_string and _is_number(tree.this.this):
        return typed(exp.Literal.string(tree.this.this), kind)
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
    is_whole = type_rules.is_whole(a) or (type_rules.is_decimal(a) and a.scale == 0)
    return is_whole or type_rules.is_decimal(b)


# --- functions of a row, and aggregates -----------------------------------------------------


def _substring(tree: exp.Substring, translate: Translate) -> Translated:
    only(tree, {"this", "start", "length"})
    value = translate(tree.this)
    parts = [tree.args[part] for part in ("start", "length") if tree.args.get(part)]
    numbers = [part.this for part in parts if isinstance(part, exp.Literal)]
    plain = (
        0 < len(numbers) == len(parts) and all(map(str.isdigit, numbers)) and int(numbers[0]) > 0
    )
    if value.type != TEXT or not plain:
        raise DiffersError(tree.sql("spark")[:80])
    return Translated(call("substring", value.tree, *map(exp.Literal.number, numbers)), TEXT)


_PARTS = {exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.Quarter: "quarter"}


def _part_of_day(part: str, value: Translated) -> Translated:
    if value.type != DATE:
        raise DiffersError(f"{part} of {value.type}")
    return typed(call(part, value.tree), INT)


def _date_part(tree: exp.Func, translate: Translate) -> Translated:
    inner = tree.this
    while isinstance(inner, exp.TsOrDsToDate):  # what sqlglot puts around an argument
        inner = inner.this
    return _part_of_day(_PARTS[type(tree)], translate(inner))


def _extract(tree: exp.Extract, translate: Translate) -> Translated:
    part = tree.this.name.lower()
    if part not in _PARTS.values():
        raise DiffersError(tree.sql("spark")[:80])
    return _part_of_day(part, translate(tree.expression))


def _joined_text(tree: exp.DPipe, translate: Translate) -> Translated:
    a, b = translate(tree.this), translate(tree.expression)
    if (a.type, b.type) != (TEXT, TEXT):
        raise DiffersError(tree.sql("spark")[:80])
    return Translated(apply(exp.DPipe, a.tree, b.tree), TEXT)


def _length(tree: exp.Length, translate: Translate) -> Translated:
    only(tree, {"this"})
    value = translate(tree.this)
    if value.type != TEXT:
        raise DiffersError(f"the length of {value.type}")
    return typed(call("length", value.tree), INT)


def _count(tree: exp.Count, translate: Translate) -> Translated:
    only(tree, {"this", "big_int"})
    inner = tree.this
    if isinstance(inner, exp.Star):
        return Translated(exp.Count(this=exp.Star()), BIGINT)
    if isinstance(inner, exp.Distinct):
        only(inner, {"expressions"})
        if len(inner.expressions) != 1:
            raise DiffersError("COUNT(DISTINCT) of several values")
        value = translate(inner.expressions[0])
        distinct = exp.Distinct(expressions=[plain_zero(value)])
        return Translated(exp.Count(this=distinct), BIGINT)
    return Translated(exp.Count(this=translate(inner).tree), BIGINT)


def _sum(tree: exp.Sum, translate: Translate) -> Translated:
    only(tree, {"this"})
    value = translate(tree.this)
    return typed(exp.Sum(this=value.tree), type_rules.total(value.type))


def _avg(tree: exp.Avg, translate: Translate) -> Translated:
    only(tree, {"this"})
    value = translate(tree.this)
    kind = type_rules.average(value.type)
    if not type_rules.is_decimal(kind):
        double = cast(value, DOUBLE)
        average = exp.Avg(this=double)
        if not type_rules.is_whole(value.type):
            return Translated(average, kind)
        # Beyond this, doubles add up differently in another order.
        spread = exp.Sum(this=call("abs", double.copy()))
        inexact = exp.GT(this=spread, expression=exp.Literal.number(2**52))
        branch = exp.If(this=inexact, true=failure("inexact"))
        return Translated(exp.Case(ifs=[branch], default=average), kind)
    total = _sum(exp.Sum(this=tree.this.copy()), translate)
    # Enough digits for all rows that may be in memory.
    count = typed(exp.Count(this=value.tree), pa.decimal128(10, 0))
    quotient = divided_exactly(total, count, kind)
    some = exp.GT(this=exp.Count(this=value.tree.copy()), expression=exp.Literal.number(0))
    return Translated(exp.Paren(this=exp.Case(ifs=[exp.If(this=some, true=quotient.tree)])), kind)


def _extreme(function: type[exp.AggFunc]) -> Rule:
    def rule(tree: exp.AggFunc, translate: Translate) -> Translated:
        only(tree, {"this"})
        value = translate(tree.this)
        return Translated(function(this=value.tree), value.type)

    return rule


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Cast: _cast,
    exp.TryCast: _cast,  # what sqlglot makes of Spark's CAST; one that fails is left to Spark
    exp.Substring: _substring,
    exp.DPipe: _joined_text,
    exp.Length: _length,
    exp.Extract: _extract,
    **dict.fromkeys(_PARTS, _date_part),
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _avg,
    exp.Min: _extreme(exp.Min),
    exp.Max: _extreme(exp.Max),
    **operators.RULES,
}
