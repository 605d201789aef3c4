"""What translation rules share: a translated expression with its type, casts, checks, and days."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.type_rules import BOOLEAN, DATE, NULL, DataType, DiffersError


@dataclass(frozen=True)
class Translated:
    """An expression of DuckDB, and the type of its values in Spark."""

    tree: exp.Expr
    type: DataType
    literal: str | None = None  # a whole number as written


# Translates a part of an expression.
Translate = Callable[[exp.Expr], Translated]
Rule = Callable[[Any, Translate], Translated]


def cast(value: Translated, kind: DataType) -> exp.Expr:
    """A value cast to a type; refused where the cast may not change it as Spark's does."""
    if value.type == kind:
        return value.tree
    if (
        type_rules.is_floating(kind)
        and type_rules.is_decimal(value.type)
        and value.type.precision > 15
    ):
        raise DiffersError(f"{value.type} as {kind}, whose last bit may differ")
    return cast_tree(value.tree, kind)


def cast_tree(tree: exp.Expr, kind: DataType) -> exp.Expr:
    """A DuckDB tree cast to a type."""
    return exp.Cast(this=tree, to=type_rules.duck_type(kind))


def typed(tree: exp.Expr, kind: DataType) -> Translated:
    """A DuckDB tree whose value is cast to the type that it has in Spark."""
    return Translated(cast_tree(tree, kind), kind)


def literal_day(day: dt.date) -> Translated:
    """A day."""
    return typed(exp.Literal.string(day.isoformat()), DATE)


def plain_zero(value: Translated) -> exp.Expr:
    """A value's tree; of a floating-point number, with negative zero as positive."""
    if not type_rules.is_floating(value.type):
        return value.tree
    return apply(exp.Add, value.tree, cast_tree(exp.Literal.number(0), value.type))


def call(function: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of a function of DuckDB's."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def failure(reason: str) -> exp.Expr:
    """What fails when it is computed: then Spark is asked."""
    return call("error", exp.Literal.string(reason))


def apply(function: type[exp.Binary], a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """An operator between two trees."""
    return exp.Paren(this=function(this=a, expression=b))


def condition(value: Translated) -> exp.Expr:
    """The tree of a boolean value; refuse any other."""
    if value.type not in (BOOLEAN, NULL):
        raise DiffersError(f"a condition of type {value.type}")
    return value.tree


def only(tree: exp.Expr, allowed: Collection[str]) -> None:
    """Refuse a tree with parts other than these: an unknown one may invert its meaning."""
    others = {name for name, value in tree.args.items() if value} - set(allowed)
    if others:
        raise DiffersError(f"{', '.join(sorted(others))} of {type(tree).__name__}")


def to_common_type(values: Sequence[Translated]) -> list[Translated]:
    """Values cast to their common type."""
    kind = type_rules.common(value.type for value in values)
    return [Translated(cast(value, kind), kind) for value in values]


_PLAIN = re.compile(r"\d{4}-\d\d-\d\d")


def day_of(tree: exp.Expr) -> dt.date | None:
    """The day that an expression spells out; None if it is anything else."""
    if isinstance(tree, exp.Paren):
        return day_of(tree.this)
    if isinstance(tree, exp.Cast) and tree.to.is_type("date"):
        text = tree.this
        if isinstance(text, exp.Literal) and text.is_string:
            try:
                return dt.date.fromisoformat(text.this) if _PLAIN.fullmatch(text.this) else None
            except ValueError:
                return None
    if isinstance(tree, exp.Add | exp.Sub) and isinstance(tree.expression, exp.Interval):
        day, interval = day_of(tree.this), tree.expression
        count = interval.this
        if day is not None and isinstance(count, exp.Literal) and count.this.isdigit():
            sign = 1 if isinstance(tree, exp.Add) else -1
            try:
                return _moved(day, sign * int(count.this), interval.text("unit").upper())
            except (OverflowError, ValueError):  # past the years that Python has
                return None
    return None


def _moved(day: dt.date, count: int, unit: str) -> dt.date | None:
    if unit in ("DAY", "DAYS"):
        return day + dt.timedelta(days=count)
    if unit not in ("MONTH", "MONTHS", "YEAR", "YEARS"):
        return None
    months = day.year * 12 + day.month - 1 + count * (12 if unit.startswith("YEAR") else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return dt.date(year, month + 1, min(day.day, last))
