"""Translates operators: arithmetic with as many digits as Spark has, comparisons and choices."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.translated import (
    Rule,
    Translate,
    Translated,
    apply,
    call,
    cast,
    cast_tree,
    condition,
    day_of,
    failure,
    literal_day,
    only,
    plain_zero,
    to_common_type,
    typed,
)
from tailrace.spark_sql.duckdb.type_rules import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TEXT,
    DataType,
    DiffersError,
)

# Spark divides to this many places, and then rounds once more.
_PLACES = 39
# A macro of `engine`: divides whole numbers, rounding half away from zero. It fails if the fraction
# is less than its third argument below a half, because there Spark may round up twice.
DIVIDE = "tailrace_divide"


def operands(tree: exp.Binary, translate: Translate) -> tuple[Translated, Translated]:
    """Both sides of an operator."""
    only(tree, {"this", "expression", "typed", "safe"})
    return translate(tree.this), translate(tree.expression)


def decimals(a: Translated, b: Translated) -> tuple[Translated, Translated]:
    """Both as decimals; a whole literal has only as many digits as it is written with."""

    def as_decimal(value: Translated) -> Translated:
        if value.literal is not None:
            kind = type_rules.literal_decimal(value.literal)
        else:
            kind = type_rules.as_decimal(value.type)
        return Translated(cast(value, kind), kind)

    return as_decimal(a), as_decimal(b)


def is_double(a: Translated, b: Translated) -> bool:
    """Whether a result is computed in double precision."""
    if not all(type_rules.is_exact(v.type) or type_rules.is_floating(v.type) for v in (a, b)):
        raise DiffersError(f"arithmetic of {a.type} and {b.type}")
    if pa.float32() in (a.type, b.type):
        raise DiffersError("arithmetic of single precision")
    return DOUBLE in (a.type, b.type)


def _arithmetic(function: type[exp.Binary]) -> Rule:
    def rule(tree: exp.Binary, translate: Translate) -> Translated:
        day = day_of(tree)
        if day is not None:
            return literal_day(day)
        a, b = operands(tree, translate)
        if is_double(a, b):
            return Translated(apply(function, cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
        if type_rules.is_whole(a.type) and type_rules.is_whole(b.type):
            kind = type_rules.common([a.type, b.type])
            return typed(apply(function, cast(a, kind), cast(b, kind)), kind)
        a, b = decimals(a, b)
        kind = (type_rules.product if function is exp.Mul else type_rules.sum_of_two)(
            a.type, b.type
        )
        # DuckDB keeps to the operands' width, and fails where 18 digits are not enough.
        wide = cast_tree(a.tree, pa.decimal128(38, a.type.scale))
        return typed(apply(function, wide, b.tree), kind)

    return rule


def _div(tree: exp.Div, translate: Translate) -> Translated:
    a, b = operands(tree, translate)
    whole = type_rules.is_whole(a.type) and type_rules.is_whole(b.type)
    if is_double(a, b) or whole:
        return Translated(_divided(cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
    a, b = decimals(a, b)
    return divided_exactly(a, b, type_rules.quotient(a.type, b.type))


def _divided(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """A quotient, or an error at zero, where Spark fails or gives NULL by its settings."""
    zero = exp.EQ(this=b.copy(), expression=exp.Literal.number(0))
    quotient = exp.Div(this=a, expression=b, typed=False, safe=False)
    branch = exp.If(this=zero, true=failure("division by zero"))
    return exp.Case(ifs=[branch], default=exp.Paren(this=quotient))


def divided_exactly(a: Translated, b: Translated, kind: DataType) -> Translated:
    """A quotient of decimals, computed with whole numbers of 128 bits."""
    more = kind.scale - a.type.scale + b.type.scale
    if more < 0:
        raise DiffersError("a quotient with fewer digits than its operands")
    huge = exp.DataType.build("HUGEINT", dialect="duckdb")

    def unscaled(value: Translated, extra: int) -> exp.Expr:
        point, more = (
            cast_tree(exp.Literal.number(10**places), pa.decimal128(38, 0))
            for places in (value.type.scale, extra)
        )
        whole = exp.Cast(this=apply(exp.Mul, value.tree, point), to=huge.copy())
        return apply(exp.Mul, whole, exp.Cast(this=more, to=huge.copy())) if extra else whole

    near = cast_tree(exp.Literal.string(f"1.01e-{_PLACES - kind.scale}"), DOUBLE)
    count = call(DIVIDE, unscaled(a, more), unscaled(b, 0), near)
    digits = pa.decimal128(max(kind.scale, 1), kind.scale)
    unit = cast_tree(exp.Literal.string(f"{10**-kind.scale:.{kind.scale}f}"), digits)
    return typed(apply(exp.Mul, cast_tree(count, pa.decimal128(38, 0)), unit), kind)


def _mod(tree: exp.Mod, translate: Translate) -> Translated:
    a, b = operands(tree, translate)
    if not (type_rules.is_whole(a.type) and b.literal is not None and int(b.literal)):
        raise DiffersError("a remainder other than of whole numbers by a literal")
    kind = type_rules.common([a.type, b.type])
    return Translated(apply(exp.Mod, cast(a, kind), cast(b, kind)), kind)


def _neg(tree: exp.Neg, translate: Translate) -> Translated:
    value = translate(tree.this)
    if not (type_rules.is_exact(value.type) or value.type == DOUBLE):
        raise DiffersError(f"the negative of {value.type}")
    negated = exp.Paren(this=exp.Neg(this=exp.Paren(this=value.tree)))
    if not isinstance(tree.this, exp.Literal) or value.literal is None:
        return Translated(negated, value.type)
    # A literal includes its sign: the least number has no positive counterpart.
    kind = INT if int(value.literal) <= 2**31 else value.type
    return Translated(cast_tree(negated, kind), kind, f"-{value.literal}")


def _abs(tree: exp.Abs, translate: Translate) -> Translated:
    only(tree, {"this"})
    value = translate(tree.this)
    if value.type != DOUBLE:  # the least whole number has no positive counterpart
        raise DiffersError(f"the absolute value of {value.type}")
    return Translated(call("abs", value.tree), DOUBLE)


def _inverse(tree: exp.Pow, translate: Translate) -> Translated:
    """pow(x, -1): 1 divided by a number, where the result may be infinite."""
    only(tree, {"this", "expression"})
    value = translate(tree.this)
    if not type_rules.is_floating(value.type) or tree.expression.sql() != "-1":
        raise DiffersError(tree.sql("spark")[:80])
    one = exp.Neg(this=exp.Literal.number(1))
    return Translated(call("pow", cast(value, DOUBLE), one), DOUBLE)


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)


def _compared(a: Translated, b: Translated) -> tuple[exp.Expr, exp.Expr]:
    kinds = (a.type, b.type)
    # Whole numbers of any width compare as the wider ones: as decimals, only more slowly.
    if all(map(type_rules.is_exact, kinds)) and not all(map(type_rules.is_whole, kinds)):
        a, b = (a, b) if a.type == b.type else decimals(a, b)
    elif DATE in (a.type, b.type):
        a, b = _as_day(a), _as_day(b)
    a, b = to_common_type([a, b])
    return plain_zero(a), plain_zero(b)  # zeros of different signs have different bits


def _as_day(value: Translated) -> Translated:
    """Text that spells a day as a day, since it is compared with one."""
    if value.type != TEXT:
        return value
    day = day_of(exp.cast(value.tree.copy(), "date"))
    return value if day is None else literal_day(day)


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
    values = [plain_zero(one) for one in to_common_type([value, *others])]
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
    *results, otherwise = to_common_type([*values, translate(default)])
    ifs = [
        exp.If(this=condition(translate(branch.this)), true=value.tree)
        for branch, value in zip(branches, results, strict=True)
    ]
    case = exp.Case(ifs=ifs, default=otherwise.tree)
    return Translated(exp.Paren(this=case), otherwise.type)


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
        values = to_common_type([translate(part) for part in (tree.this, *tree.expressions)])
        return Translated(call(function, *(value.tree for value in values)), values[0].type)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.Abs: _abs,
    exp.Pow: _inverse,
    exp.Add: _arithmetic(exp.Add),
    exp.Sub: _arithmetic(exp.Sub),
    exp.Mul: _arithmetic(exp.Mul),
    exp.Div: _div,
    exp.Mod: _mod,
    exp.Neg: _neg,
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
