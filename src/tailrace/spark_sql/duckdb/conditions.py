"""Translates comparisons, and choices by conditions."""

from __future__ import annotations

from sqlglot import exp

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.arithmetic import decimals, operands, plain_zero
from tailrace.spark_sql.duckdb.dates import day_of
from tailrace.spark_sql.duckdb.translated import (
    Rule,
    Translate,
    Translated,
    apply,
    cast_tree,
    condition,
    only,
    to_common_type,
)
from tailrace.spark_sql.duckdb.type_rules import BOOLEAN, DATE, TEXT, DiffersError

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)


def _compared(a: Translated, b: Translated) -> tuple[exp.Expr, exp.Expr]:
    if a.type != b.type and type_rules.is_exact(a.type) and type_rules.is_exact(b.type):
        a, b = decimals(a, b)
    elif DATE in (a.type, b.type):
        a, b = _as_day(a), _as_day(b)
    sides, kind = to_common_type([a, b])
    if type_rules.is_floating(kind):  # joined by their bits, zeros of different signs would differ
        sides = [plain_zero(value, kind) for value in sides]
    return sides[0], sides[1]


def _as_day(value: Translated) -> Translated:
    """Text that spells a day as a day, since it is compared with one."""
    if value.type != TEXT:
        return value
    day = day_of(exp.cast(value.tree.copy(), "date"))
    return (
        value
        if day is None
        else Translated(cast_tree(exp.Literal.string(day.isoformat()), DATE), DATE)
    )


def _comparison(function: type[exp.Binary]) -> Rule:
    def rule(tree: exp.Binary, translate: Translate) -> Translated:
        # Spark goes from left to right; sqlglot lets some of them bind tighter than others, and
        # puts what is right of <=> in parentheses.
        if isinstance(tree.expression, _COMPARISONS) or (
            isinstance(tree, exp.NullSafeEQ) and isinstance(tree.expression, exp.Paren)
        ):
            raise DiffersError(tree.sql("spark")[:80])
        a, b = _compared(*operands(tree, translate))
        return Translated(apply(function, a, b), BOOLEAN)

    return rule


def _connected(function: type[exp.Connector]) -> Rule:
    def rule(tree: exp.Connector, translate: Translate) -> Translated:
        only(tree, {"this", "expression"})
        a, b = condition(translate(tree.this)), condition(translate(tree.expression))
        return Translated(apply(function, a, b), BOOLEAN)

    return rule


def _not(tree: exp.Not, translate: Translate) -> Translated:
    only(tree, {"this"})
    return Translated(exp.Not(this=exp.Paren(this=condition(translate(tree.this)))), BOOLEAN)


def _is(tree: exp.Is, translate: Translate) -> Translated:
    only(tree, {"this", "expression"})
    if not isinstance(tree.expression, exp.Null):
        raise DiffersError(tree.sql("spark"))
    return Translated(apply(exp.Is, translate(tree.this).tree, exp.Null()), BOOLEAN)


def _in(tree: exp.In, translate: Translate) -> Translated:
    only(tree, {"this", "expressions"})
    value = translate(tree.this)
    others = [translate(other) for other in tree.expressions]
    values, kind = to_common_type([value, *others])
    if type_rules.is_floating(kind):  # as when comparing two
        values = [plain_zero(one, kind) for one in values]
    return Translated(exp.Paren(this=exp.In(this=values[0], expressions=values[1:])), BOOLEAN)


def _between(tree: exp.Between, translate: Translate) -> Translated:
    only(tree, {"this", "low", "high"})
    value = translate(tree.this)
    low = _compared(value, translate(tree.args["low"]))
    high = _compared(value, translate(tree.args["high"]))
    both = exp.And(
        this=exp.GTE(this=low[0], expression=low[1]),
        expression=exp.LTE(this=high[0].copy(), expression=high[1]),
    )
    return Translated(exp.Paren(this=both), BOOLEAN)


def _like(tree: exp.Like, translate: Translate) -> Translated:
    only(tree, {"this", "expression", "negate"})
    value, pattern = translate(tree.this), tree.expression
    if value.type != TEXT or not pattern.is_string or "\\" in pattern.this:
        raise DiffersError(tree.sql("spark")[:80])
    match = apply(exp.Like, value.tree, exp.Literal.string(pattern.this))
    return Translated(exp.Not(this=match) if tree.args.get("negate") else match, BOOLEAN)


def _case(tree: exp.Case, translate: Translate) -> Translated:
    only(tree, {"ifs", "default"})
    default = tree.args.get("default") or exp.Null()
    branches = tree.args["ifs"]
    values = [translate(branch.args["true"]) for branch in branches]
    results, kind = to_common_type([*values, translate(default)])
    ifs = [
        exp.If(this=condition(translate(branch.this)), true=value)
        for branch, value in zip(branches, results, strict=False)
    ]
    return Translated(exp.Paren(this=exp.Case(ifs=ifs, default=results[-1])), kind)


def _if(tree: exp.If, translate: Translate) -> Translated:
    only(tree, {"this", "true", "false"})
    branch = exp.If(this=tree.this.copy(), true=tree.args["true"].copy())
    return _case(exp.Case(ifs=[branch], default=tree.args.get("false")), translate)


def _one_of(function: str) -> Rule:
    """COALESCE, LEAST and GREATEST, which skip NULLs."""
    least = 1 if function == "coalesce" else 2

    def rule(tree: exp.Func, translate: Translate) -> Translated:
        only(tree, {"this", "expressions", "ignore_nulls"})
        if 1 + len(tree.expressions) < least:
            raise DiffersError(f"{function} of one value")
        values, kind = to_common_type([translate(part) for part in (tree.this, *tree.expressions)])
        return Translated(exp.Anonymous(this=function, expressions=values), kind)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    **{function: _comparison(function) for function in _COMPARISONS},
    exp.And: _connected(exp.And),
    exp.Or: _connected(exp.Or),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _one_of("coalesce"),
    exp.Least: _one_of("least"),
    exp.Greatest: _one_of("greatest"),
}
