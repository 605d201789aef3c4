"""Translates functions of a row, and aggregates."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.arithmetic import divided_exactly, plain_zero
from tailrace.spark_sql.duckdb.translated import (
    Rule,
    Translate,
    Translated,
    apply,
    cast,
    cast_tree,
    only,
)
from tailrace.spark_sql.duckdb.type_rules import BIGINT, DATE, DOUBLE, INT, TEXT, DiffersError


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
    return Translated(
        exp.Anonymous(
            this="substring",
            expressions=[value.tree, *(exp.Literal.number(number) for number in numbers)],
        ),
        TEXT,
    )


_PARTS = {exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.Quarter: "quarter"}


def _part_of_day(part: str, value: Translated) -> Translated:
    if value.type != DATE:
        raise DiffersError(f"{part} of {value.type}")
    return Translated(cast_tree(exp.Anonymous(this=part, expressions=[value.tree]), INT), INT)


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
    return Translated(cast_tree(exp.Anonymous(this="length", expressions=[value.tree]), INT), INT)


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
        plain = (
            plain_zero(value.tree, value.type) if type_rules.is_floating(value.type) else value.tree
        )
        return Translated(exp.Count(this=exp.Distinct(expressions=[plain])), BIGINT)
    return Translated(exp.Count(this=translate(inner).tree), BIGINT)


def _sum(tree: exp.Sum, translate: Translate) -> Translated:
    only(tree, {"this"})
    value = translate(tree.this)
    kind = type_rules.total(value.type)
    return Translated(cast_tree(exp.Sum(this=value.tree), kind), kind)


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
        spread = exp.Sum(this=exp.Anonymous(this="abs", expressions=[double.copy()]))
        inexact = exp.GT(this=spread, expression=exp.Literal.number(2**52))
        failure = exp.Anonymous(this="error", expressions=[exp.Literal.string("inexact")])
        return Translated(exp.Case(ifs=[exp.If(this=inexact, true=failure)], default=average), kind)
    total = _sum(exp.Sum(this=tree.this.copy()), translate)
    # Enough digits for all rows that may be in memory.
    digits = pa.decimal128(10, 0)
    count = Translated(cast_tree(exp.Count(this=value.tree), digits), digits)
    quotient = divided_exactly(total, count, kind)
    some = exp.GT(this=exp.Count(this=value.tree.copy()), expression=exp.Literal.number(0))
    return Translated(exp.Paren(this=exp.Case(ifs=[exp.If(this=some, true=quotient.tree)])), kind)


def _extreme(function: type[exp.AggFunc]) -> Rule:
    def rule(tree: exp.AggFunc, translate: Translate) -> Translated:
        only(tree, {"this"})
        value = translate(tree.this)
        return Translated(function(this=value.tree), value.type)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
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
}
