"""What every rule is made of: expressions with their types, and how one is said in another type."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tailrace.spark_sql.duckdb import kinds
from tailrace.spark_sql.duckdb.kinds import BOOLEAN, NULL, DiffersError, Kind


@dataclass(frozen=True)
class Typed:
    """An expression of DuckDB, and the type of its values in Spark."""

    tree: exp.Expr
    kind: Kind
    literal: str | None = None  # a whole number as it is written


# Says a part of an expression.
Say = Callable[[exp.Expr], Typed]
Rule = Callable[[Any, Say], Typed]


def cast(value: Typed, kind: Kind) -> exp.Expr:
    """A value as one of another type."""
    if value.kind == kind:
        return value.tree
    if kinds.is_floating(kind) and kinds.is_decimal(value.kind) and value.kind.precision > 15:
        raise DiffersError(f"{value.kind} as {kind}, whose last bit may differ")
    return cast_tree(value.tree, kind)


def cast_tree(tree: exp.Expr, kind: Kind) -> exp.Expr:
    """The same for any tree of DuckDB."""
    return exp.Cast(this=tree, to=kinds.duck_type(kind))


def apply(function: type[exp.Binary], a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """An operator between two trees."""
    return exp.Paren(this=function(this=a, expression=b))


def condition(value: Typed) -> exp.Expr:
    """A value that is true or not."""
    if value.kind not in (BOOLEAN, NULL):
        raise DiffersError(f"a condition of type {value.kind}")
    return value.tree


def only(tree: exp.Expr, allowed: Collection[str]) -> None:
    """Refuse a tree with parts that are not known: one may turn its meaning around."""
    said = {name for name, value in tree.args.items() if value}
    if not said <= set(allowed):
        raise DiffersError(f"{', '.join(sorted(said - set(allowed)))} of {type(tree).__name__}")


def together(values: list[Typed]) -> tuple[list[exp.Expr], Kind]:
    """Values that are compared or chosen from, in one type."""
    kind = kinds.common([value.kind for value in values])
    return [cast(value, kind) for value in values], kind
