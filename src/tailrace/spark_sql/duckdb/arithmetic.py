"""Numbers: sums, products and quotients with the digits that Spark gives them."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb import kinds
from tailrace.spark_sql.duckdb.dates import day_of
from tailrace.spark_sql.duckdb.kinds import DATE, DOUBLE, INT, DiffersError, Kind
from tailrace.spark_sql.duckdb.typed import Rule, Say, Typed, apply, cast, cast_tree, only

# Spark divides to so many places, and then rounds once more.
_PLACES = 39
# A division of whole numbers, rounded half away from zero; made by `engine`. Its third argument is
# how near below a half a quotient may not be, since Spark may round that up twice.
DIVIDE = "tailrace_divide"


def operands(tree: exp.Binary, say: Say) -> tuple[Typed, Typed]:
    """Both sides of an operator."""
    only(tree, {"this", "expression", "typed", "safe"})
    return say(tree.this), say(tree.expression)


def decimals(a: Typed, b: Typed) -> tuple[Typed, Typed]:
    """Both as decimals: a whole number that is written out has just its digits."""

    def made(value: Typed) -> Typed:
        if value.literal is not None:
            kind = kinds.literal_decimal(value.literal)
        else:
            kind = kinds.as_decimal(value.kind)
        return Typed(cast(value, kind), kind)

    return made(a), made(b)


def is_double(a: Typed, b: Typed) -> bool:
    """Whether a result is computed in double precision."""
    if not all(kinds.is_exact(v.kind) or kinds.is_floating(v.kind) for v in (a, b)):
        raise DiffersError(f"arithmetic of {a.kind} and {b.kind}")
    if pa.float32() in (a.kind, b.kind):
        raise DiffersError("arithmetic of single precision")
    return DOUBLE in (a.kind, b.kind)


def _arithmetic(function: type[exp.Binary]) -> Rule:
    def rule(tree: exp.Binary, say: Say) -> Typed:
        day = day_of(tree)
        if day is not None:
            return Typed(cast_tree(exp.Literal.string(day.isoformat()), DATE), DATE)
        a, b = operands(tree, say)
        if is_double(a, b):
            return Typed(apply(function, cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
        if kinds.is_whole(a.kind) and kinds.is_whole(b.kind):
            kind = kinds.common([a.kind, b.kind])
            return Typed(cast_tree(apply(function, cast(a, kind), cast(b, kind)), kind), kind)
        a, b = decimals(a, b)
        kind = (kinds.product if function is exp.Mul else kinds.sum_of_two)(a.kind, b.kind)
        # DuckDB keeps to the operands' width, and fails where 18 digits are not enough.
        wide = cast_tree(a.tree, pa.decimal128(38, a.kind.scale))
        return Typed(cast_tree(apply(function, wide, b.tree), kind), kind)

    return rule


def _div(tree: exp.Div, say: Say) -> Typed:
    a, b = operands(tree, say)
    whole = kinds.is_whole(a.kind) and kinds.is_whole(b.kind)
    if is_double(a, b) or whole:
        return Typed(_divided(cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
    a, b = decimals(a, b)
    return divided_exactly(a, b, kinds.quotient(a.kind, b.kind))


def _divided(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """Spark fails at a zero, or gives NULL: it has to be asked."""
    zero = exp.EQ(this=b.copy(), expression=exp.Literal.number(0))
    failure = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    quotient = exp.Div(this=a, expression=b, typed=False, safe=False)
    return exp.Case(ifs=[exp.If(this=zero, true=failure)], default=exp.Paren(this=quotient))


def divided_exactly(a: Typed, b: Typed, kind: Kind) -> Typed:
    """Decimals as whole numbers of 128 bits, with as many digits after the point as wanted."""
    more = kind.scale - a.kind.scale + b.kind.scale
    if more < 0:
        raise DiffersError("a quotient with fewer digits than its operands")
    huge = exp.DataType.build("HUGEINT", dialect="duckdb")

    def unscaled(value: Typed, extra: int) -> exp.Expr:
        point, more = (
            cast_tree(exp.Literal.number(10**places), pa.decimal128(38, 0))
            for places in (value.kind.scale, extra)
        )
        whole = exp.Cast(this=apply(exp.Mul, value.tree, point), to=huge.copy())
        return apply(exp.Mul, whole, exp.Cast(this=more, to=huge.copy())) if extra else whole

    near = cast_tree(exp.Literal.string(f"1.01e-{_PLACES - kind.scale}"), DOUBLE)
    count = exp.Anonymous(this=DIVIDE, expressions=[unscaled(a, more), unscaled(b, 0), near])
    unit = cast_tree(exp.Literal.string(f"{10**-kind.scale:.{kind.scale}f}"), _unit(kind))
    scaled = apply(exp.Mul, cast_tree(count, pa.decimal128(38, 0)), unit)
    return Typed(cast_tree(scaled, kind), kind)


def _unit(kind: Kind) -> Kind:
    return pa.decimal128(max(kind.scale, 1), kind.scale)


def _mod(tree: exp.Mod, say: Say) -> Typed:
    a, b = operands(tree, say)
    if not (kinds.is_whole(a.kind) and b.literal is not None and int(b.literal)):
        raise DiffersError("a remainder, but of whole numbers by one that is written out")
    kind = kinds.common([a.kind, b.kind])
    return Typed(apply(exp.Mod, cast(a, kind), cast(b, kind)), kind)


def _neg(tree: exp.Neg, say: Say) -> Typed:
    value = say(tree.this)
    if not (kinds.is_exact(value.kind) or value.kind == DOUBLE):
        raise DiffersError(f"the negative of {value.kind}")
    made = exp.Paren(this=exp.Neg(this=exp.Paren(this=value.tree)))
    if not isinstance(tree.this, exp.Literal) or value.literal is None:
        return Typed(made, value.kind)
    # A number that is written out is one with its sign: the least has no positive twin.
    kind = INT if int(value.literal) <= 2**31 else value.kind
    return Typed(cast_tree(made, kind), kind, f"-{value.literal}")


def plain_zero(value: exp.Expr, kind: Kind) -> exp.Expr:
    """A floating-point number, with a positive zero for a negative one."""
    return apply(exp.Add, value, cast_tree(exp.Literal.number(0), kind))


def _abs(tree: exp.Abs, say: Say) -> Typed:
    only(tree, {"this"})
    value = say(tree.this)
    if value.kind != DOUBLE:  # the least whole number has no positive twin
        raise DiffersError(f"the absolute value of {value.kind}")
    return Typed(exp.Anonymous(this="abs", expressions=[value.tree]), DOUBLE)


def _inverse(tree: exp.Pow, say: Say) -> Typed:
    """1 divided by a number, where that may be infinite."""
    only(tree, {"this", "expression"})
    value = say(tree.this)
    if not kinds.is_floating(value.kind) or tree.expression.sql() != "-1":
        raise DiffersError(tree.sql("spark")[:80])
    one = exp.Neg(this=exp.Literal.number(1))
    return Typed(exp.Anonymous(this="pow", expressions=[cast(value, DOUBLE), one]), DOUBLE)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Abs: _abs,
    exp.Pow: _inverse,
    exp.Add: _arithmetic(exp.Add),
    exp.Sub: _arithmetic(exp.Sub),
    exp.Mul: _arithmetic(exp.Mul),
    exp.Div: _div,
    exp.Mod: _mod,
    exp.Neg: _neg,
}
