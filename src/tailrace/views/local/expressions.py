"""Expressions with Spark's meaning, said to DuckDB.

Always true: what is returned has the type that Spark gives it, and Spark's value or an error.
Rules refuse what they do not know to the last detail, so that a part of an expression that
turns its meaning around is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.store import types
from tailrace.views.dates import day_of
from tailrace.views.local import kinds
from tailrace.views.local.kinds import (
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

# A division of whole numbers, rounded half away from zero; made by `engine`.
DIVIDE = "tailrace_divide"


@dataclass(frozen=True)
class Typed:
    """An expression of DuckDB, and the type of its values in Spark."""

    tree: exp.Expr
    kind: Kind
    literal: str | None = None  # a whole number as it is written


Columns = Callable[[exp.Column], Typed]
Rule = Callable[[Any, Columns], Typed]


def typed(tree: exp.Expr, columns: Columns) -> Typed:
    """An expression over columns."""
    rule = _RULES.get(type(tree))
    if rule is None:
        raise DiffersError(f"{type(tree).__name__} in {tree.sql('spark')[:80]}")
    return rule(tree, columns)


def condition(tree: exp.Expr, columns: Columns) -> exp.Expr:
    """An expression that is true or not."""
    made = typed(tree, columns)
    if made.kind not in (BOOLEAN, NULL):
        raise DiffersError(f"a condition of type {made.kind}")
    return made.tree


def cast(value: Typed, kind: Kind) -> exp.Expr:
    """A value as one of another type."""
    if value.kind == kind:
        return value.tree
    return _as(value.tree, kind)


def _as(tree: exp.Expr, kind: Kind) -> exp.Expr:
    return exp.Cast(this=tree, to=kinds.duck_type(kind))


def _only(tree: exp.Expr, allowed: Collection[str]) -> None:
    said = {name for name, value in tree.args.items() if value}
    if not said <= set(allowed):
        raise DiffersError(f"{', '.join(sorted(said - set(allowed)))} of {type(tree).__name__}")


# --- values ----------------------------------------------------------------------------------


def _literal(tree: exp.Literal, _: Columns) -> Typed:
    text = tree.this
    if tree.is_string:
        return Typed(exp.Literal.string(text), TEXT)
    if not text.replace(".", "", 1).isdigit():
        raise DiffersError(f"the number {text}")
    if "." in text:
        kind = kinds.literal_decimal(text)
        return Typed(_as(exp.Literal.string(text), kind), kind)
    number = int(text)
    if number >= 2**63:
        raise DiffersError(f"the number {text}")
    kind = INT if number < 2**31 else BIGINT
    return Typed(_as(exp.Literal.number(text), kind), kind, literal=text)


def _null(_: exp.Null, __: Columns) -> Typed:
    return Typed(exp.Null(), NULL)


def _boolean(tree: exp.Boolean, _: Columns) -> Typed:
    return Typed(tree.copy(), BOOLEAN)


def _paren(tree: exp.Paren, columns: Columns) -> Typed:
    inside = typed(tree.this, columns)
    return Typed(exp.Paren(this=inside.tree), inside.kind, inside.literal)


def _column(tree: exp.Column, columns: Columns) -> Typed:
    return columns(tree)


def _cast(tree: exp.Cast, columns: Columns) -> Typed:
    _only(tree, {"this", "to", "_type"})
    day = day_of(tree)
    if day is not None:
        return Typed(_as(exp.Literal.string(day.isoformat()), DATE), DATE)
    try:
        kind = types.parse_type(tree.to.sql("spark"))
    except InvalidError as error:
        raise DiffersError(str(error)) from error
    value = typed(tree.this, columns)
    if not _same_cast(value.kind, kind):
        raise DiffersError(f"{value.kind} as {kind}")
    return Typed(cast(value, kind), kind)


def _same_cast(a: Kind, b: Kind) -> bool:
    if b in (a, DOUBLE):
        return a in (b, NULL) or kinds.is_exact(a) or kinds.is_floating(a)
    return a == NULL or (kinds.is_exact(a) and kinds.is_exact(b) and _keeps_point(a, b))


def _keeps_point(a: Kind, b: Kind) -> bool:
    """Whether only the range is narrowed: Spark cuts off what a whole number cannot hold."""
    return kinds.is_decimal(b) or kinds.is_whole(a)


# --- arithmetic ------------------------------------------------------------------------------


def _operands(tree: exp.Binary, columns: Columns) -> tuple[Typed, Typed]:
    _only(tree, {"this", "expression", "typed", "safe"})
    return typed(tree.this, columns), typed(tree.expression, columns)


def _decimals(a: Typed, b: Typed) -> tuple[Typed, Typed]:
    """Both as decimals: a whole number that is written out has just its digits."""

    def made(value: Typed) -> Typed:
        if value.literal is not None:
            kind = kinds.literal_decimal(value.literal)
        else:
            kind = kinds.as_decimal(value.kind)
        return Typed(cast(value, kind), kind)

    return made(a), made(b)


def _is_double(a: Typed, b: Typed) -> bool:
    """Whether a result is computed in double precision."""
    if not all(kinds.is_exact(v.kind) or kinds.is_floating(v.kind) for v in (a, b)):
        raise DiffersError(f"arithmetic of {a.kind} and {b.kind}")
    if pa.float32() in (a.kind, b.kind):
        raise DiffersError("arithmetic of single precision")
    return DOUBLE in (a.kind, b.kind)


def _arithmetic(function: type[exp.Binary]) -> Rule:
    def rule(tree: exp.Binary, columns: Columns) -> Typed:
        day = day_of(tree)
        if day is not None:
            return Typed(_as(exp.Literal.string(day.isoformat()), DATE), DATE)
        a, b = _operands(tree, columns)
        if _is_double(a, b):
            return Typed(_apply(function, cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
        if kinds.is_whole(a.kind) and kinds.is_whole(b.kind):
            kind = kinds.common([a.kind, b.kind])
            return Typed(_as(_apply(function, cast(a, kind), cast(b, kind)), kind), kind)
        a, b = _decimals(a, b)
        kind = (kinds.product if function is exp.Mul else kinds.sum_of_two)(a.kind, b.kind)
        # DuckDB keeps to the operands' width, and fails where 18 digits are not enough.
        wide = _as(a.tree, pa.decimal128(38, a.kind.scale))
        return Typed(_as(_apply(function, wide, b.tree), kind), kind)

    return rule


def _apply(function: type[exp.Binary], a: exp.Expr, b: exp.Expr) -> exp.Expr:
    return exp.Paren(this=function(this=a, expression=b))


def _div(tree: exp.Div, columns: Columns) -> Typed:
    a, b = _operands(tree, columns)
    whole = kinds.is_whole(a.kind) and kinds.is_whole(b.kind)
    if _is_double(a, b) or whole:
        return Typed(_divided(cast(a, DOUBLE), cast(b, DOUBLE)), DOUBLE)
    a, b = _decimals(a, b)
    return _divided_exactly(a, b, kinds.quotient(a.kind, b.kind))


def _divided(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """Spark fails at a zero, or gives NULL: it has to be asked."""
    zero = exp.EQ(this=b.copy(), expression=exp.Literal.number(0))
    failure = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    quotient = exp.Div(this=a, expression=b, typed=False, safe=False)
    return exp.Case(ifs=[exp.If(this=zero, true=failure)], default=exp.Paren(this=quotient))


def _divided_exactly(a: Typed, b: Typed, kind: Kind) -> Typed:
    """Decimals as whole numbers of 128 bits, with as many digits after the point as wanted."""
    more = kind.scale - a.kind.scale + b.kind.scale
    if more < 0:
        raise DiffersError("a quotient with fewer digits than its operands")
    huge = exp.DataType.build("HUGEINT", dialect="duckdb")

    def unscaled(value: Typed, extra: int) -> exp.Expr:
        factor = _as(exp.Literal.number(10 ** (value.kind.scale + extra)), pa.decimal128(38, 0))
        return exp.Cast(this=_apply(exp.Mul, value.tree, factor), to=huge.copy())

    count = exp.Anonymous(this=DIVIDE, expressions=[unscaled(a, more), unscaled(b, 0)])
    unit = _as(exp.Literal.string(f"{10**-kind.scale:.{kind.scale}f}"), _unit(kind))
    scaled = _apply(exp.Mul, _as(count, pa.decimal128(38, 0)), unit)
    return Typed(_as(scaled, kind), kind)


def _unit(kind: Kind) -> Kind:
    return pa.decimal128(max(kind.scale, 1), kind.scale)


def _mod(tree: exp.Mod, columns: Columns) -> Typed:
    a, b = _operands(tree, columns)
    if not (kinds.is_whole(a.kind) and b.literal is not None and int(b.literal)):
        raise DiffersError("a remainder, but of whole numbers by one that is written out")
    kind = kinds.common([a.kind, b.kind])
    return Typed(_apply(exp.Mod, cast(a, kind), cast(b, kind)), kind)


def _neg(tree: exp.Neg, columns: Columns) -> Typed:
    value = typed(tree.this, columns)
    if not (kinds.is_exact(value.kind) or value.kind == DOUBLE):
        raise DiffersError(f"the negative of {value.kind}")
    made = exp.Paren(this=exp.Neg(this=exp.Paren(this=value.tree)))
    written = isinstance(tree.this, exp.Literal) and value.literal is not None
    return Typed(made, value.kind, f"-{value.literal}" if written else None)


# --- conditions ------------------------------------------------------------------------------


def _together(values: list[Typed]) -> tuple[list[exp.Expr], Kind]:
    """Values that are compared or chosen from, in one type."""
    kind = kinds.common([value.kind for value in values])
    return [cast(value, kind) for value in values], kind


def _compared(a: Typed, b: Typed) -> tuple[exp.Expr, exp.Expr]:
    if a.kind != b.kind and kinds.is_exact(a.kind) and kinds.is_exact(b.kind):
        a, b = _decimals(a, b)
    elif DATE in (a.kind, b.kind):
        a, b = _as_day(a), _as_day(b)
    made, kind = _together([a, b])
    if kinds.is_floating(kind):  # joined by their bits, zeros of different signs would differ
        made = [plain_zero(value, kind) for value in made]
    return made[0], made[1]


def plain_zero(value: exp.Expr, kind: Kind) -> exp.Expr:
    """A floating-point number, with a positive zero for a negative one."""
    return _apply(exp.Add, value, _as(exp.Literal.number(0), kind))


def _as_day(value: Typed) -> Typed:
    """A day that is written out as text is one where it is compared with a day."""
    if value.kind != TEXT:
        return value
    day = day_of(exp.cast(value.tree.copy(), "date"))
    return value if day is None else Typed(_as(exp.Literal.string(day.isoformat()), DATE), DATE)


def _comparison(function: type[exp.Binary]) -> Rule:
    def rule(tree: exp.Binary, columns: Columns) -> Typed:
        a, b = _compared(*_operands(tree, columns))
        return Typed(_apply(function, a, b), BOOLEAN)

    return rule


def _connected(function: type[exp.Connector]) -> Rule:
    def rule(tree: exp.Connector, columns: Columns) -> Typed:
        _only(tree, {"this", "expression"})
        a, b = condition(tree.this, columns), condition(tree.expression, columns)
        return Typed(_apply(function, a, b), BOOLEAN)

    return rule


def _not(tree: exp.Not, columns: Columns) -> Typed:
    _only(tree, {"this"})
    return Typed(exp.Not(this=exp.Paren(this=condition(tree.this, columns))), BOOLEAN)


def _is(tree: exp.Is, columns: Columns) -> Typed:
    _only(tree, {"this", "expression"})
    if not isinstance(tree.expression, exp.Null):
        raise DiffersError(tree.sql("spark"))
    return Typed(
        exp.Paren(this=exp.Is(this=_any(tree.this, columns), expression=exp.Null())), BOOLEAN
    )


def _any(tree: exp.Expr, columns: Columns) -> exp.Expr:
    return exp.Paren(this=typed(tree, columns).tree)


def _in(tree: exp.In, columns: Columns) -> Typed:
    _only(tree, {"this", "expressions"})
    value = typed(tree.this, columns)
    others = [typed(other, columns) for other in tree.expressions]
    made, _ = _together([value, *others])
    return Typed(exp.Paren(this=exp.In(this=made[0], expressions=made[1:])), BOOLEAN)


def _between(tree: exp.Between, columns: Columns) -> Typed:
    _only(tree, {"this", "low", "high"})
    value = typed(tree.this, columns)
    low = _compared(value, typed(tree.args["low"], columns))
    high = _compared(value, typed(tree.args["high"], columns))
    both = exp.And(
        this=exp.GTE(this=low[0], expression=low[1]),
        expression=exp.LTE(this=high[0].copy(), expression=high[1]),
    )
    return Typed(exp.Paren(this=both), BOOLEAN)


def _like(tree: exp.Like, columns: Columns) -> Typed:
    _only(tree, {"this", "expression", "negate"})
    value, pattern = typed(tree.this, columns), tree.expression
    if value.kind != TEXT or not pattern.is_string or "\\" in pattern.this:
        raise DiffersError(tree.sql("spark")[:80])
    made = _apply(exp.Like, value.tree, exp.Literal.string(pattern.this))
    return Typed(exp.Not(this=made) if tree.args.get("negate") else made, BOOLEAN)


# --- choices ---------------------------------------------------------------------------------


def _case(tree: exp.Case, columns: Columns) -> Typed:
    _only(tree, {"ifs", "default"})
    default = tree.args.get("default") or exp.Null()
    branches = tree.args["ifs"]
    values = [typed(branch.args["true"], columns) for branch in branches]
    made, kind = _together([*values, typed(default, columns)])
    ifs = [
        exp.If(this=condition(branch.this, columns), true=value)
        for branch, value in zip(branches, made, strict=False)
    ]
    return Typed(exp.Paren(this=exp.Case(ifs=ifs, default=made[-1])), kind)


def _if(tree: exp.If, columns: Columns) -> Typed:
    _only(tree, {"this", "true", "false"})
    branch = exp.If(this=tree.this.copy(), true=tree.args["true"].copy())
    return _case(exp.Case(ifs=[branch], default=tree.args.get("false")), columns)


def _one_of(function: str) -> Rule:
    """COALESCE, LEAST and GREATEST: NULLs are passed over."""

    def rule(tree: exp.Func, columns: Columns) -> Typed:
        _only(tree, {"this", "expressions", "ignore_nulls"})
        made, kind = _together([typed(part, columns) for part in (tree.this, *tree.expressions)])
        return Typed(exp.Anonymous(this=function, expressions=made), kind)

    return rule


# --- functions -------------------------------------------------------------------------------


def _substring(tree: exp.Substring, columns: Columns) -> Typed:
    _only(tree, {"this", "start", "length"})
    value = typed(tree.this, columns)
    parts = [tree.args[part] for part in ("start", "length") if tree.args.get(part)]
    numbers = [part.this for part in parts if isinstance(part, exp.Literal)]
    plain = len(numbers) == len(parts) and all(map(str.isdigit, numbers)) and int(numbers[0]) > 0
    if value.kind != TEXT or not plain:
        raise DiffersError(tree.sql("spark")[:80])
    return Typed(
        exp.Anonymous(
            this="substring",
            expressions=[value.tree, *(exp.Literal.number(number) for number in numbers)],
        ),
        TEXT,
    )


_PARTS = {exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.Quarter: "quarter"}


def _part_of_day(part: str, value: Typed) -> Typed:
    if value.kind != DATE:
        raise DiffersError(f"{part} of {value.kind}")
    return Typed(_as(exp.Anonymous(this=part, expressions=[value.tree]), INT), INT)


def _date_part(tree: exp.Func, columns: Columns) -> Typed:
    inner = tree.this
    while isinstance(inner, exp.TsOrDsToDate):  # what sqlglot puts around an argument
        inner = inner.this
    return _part_of_day(_PARTS[type(tree)], typed(inner, columns))


def _extract(tree: exp.Extract, columns: Columns) -> Typed:
    part = tree.this.name.lower()
    if part not in _PARTS.values():
        raise DiffersError(tree.sql("spark")[:80])
    return _part_of_day(part, typed(tree.expression, columns))


def _joined_text(tree: exp.DPipe, columns: Columns) -> Typed:
    a, b = typed(tree.this, columns), typed(tree.expression, columns)
    if (a.kind, b.kind) != (TEXT, TEXT):
        raise DiffersError(tree.sql("spark")[:80])
    return Typed(_apply(exp.DPipe, a.tree, b.tree), TEXT)


def _length(tree: exp.Length, columns: Columns) -> Typed:
    _only(tree, {"this"})
    value = typed(tree.this, columns)
    if value.kind != TEXT:
        raise DiffersError(f"the length of {value.kind}")
    return Typed(_as(exp.Anonymous(this="length", expressions=[value.tree]), INT), INT)


# --- aggregates ------------------------------------------------------------------------------


def _count(tree: exp.Count, columns: Columns) -> Typed:
    _only(tree, {"this", "big_int"})
    inner = tree.this
    if isinstance(inner, exp.Star):
        return Typed(exp.Count(this=exp.Star()), BIGINT)
    if isinstance(inner, exp.Distinct):
        _only(inner, {"expressions"})
        if len(inner.expressions) != 1:
            raise DiffersError("COUNT(DISTINCT) of several values")
        value = typed(inner.expressions[0], columns).tree
        return Typed(exp.Count(this=exp.Distinct(expressions=[value])), BIGINT)
    return Typed(exp.Count(this=typed(inner, columns).tree), BIGINT)


def _sum(tree: exp.Sum, columns: Columns) -> Typed:
    _only(tree, {"this"})
    value = typed(tree.this, columns)
    kind = kinds.total(value.kind)
    return Typed(_as(exp.Sum(this=value.tree), kind), kind)


def _avg(tree: exp.Avg, columns: Columns) -> Typed:
    _only(tree, {"this"})
    value = typed(tree.this, columns)
    kind = kinds.average(value.kind)
    if not kinds.is_decimal(kind):
        return Typed(exp.Avg(this=cast(value, DOUBLE)), kind)
    total = _sum(exp.Sum(this=tree.this.copy()), columns)
    count = Typed(_as(exp.Count(this=value.tree), pa.decimal128(20, 0)), pa.decimal128(20, 0))
    made = _divided_exactly(total, count, kind)
    some = exp.GT(this=exp.Count(this=value.tree.copy()), expression=exp.Literal.number(0))
    return Typed(exp.Paren(this=exp.Case(ifs=[exp.If(this=some, true=made.tree)])), kind)


def _extreme(function: type[exp.AggFunc]) -> Rule:
    def rule(tree: exp.AggFunc, columns: Columns) -> Typed:
        _only(tree, {"this"})
        value = typed(tree.this, columns)
        return Typed(function(this=value.tree), value.kind)

    return rule


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Column: _column,
    exp.Cast: _cast,
    exp.TryCast: _cast,  # what sqlglot makes of Spark's CAST; one that fails is left to Spark
    exp.Add: _arithmetic(exp.Add),
    exp.Sub: _arithmetic(exp.Sub),
    exp.Mul: _arithmetic(exp.Mul),
    exp.Div: _div,
    exp.Mod: _mod,
    exp.Neg: _neg,
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
    exp.Substring: _substring,
    exp.Extract: _extract,
    exp.DPipe: _joined_text,
    exp.Length: _length,
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _avg,
    exp.Min: _extreme(exp.Min),
    exp.Max: _extreme(exp.Max),
    **dict.fromkeys(_PARTS, _date_part),
    **{
        function: _comparison(function)
        for function in (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
    },
}
