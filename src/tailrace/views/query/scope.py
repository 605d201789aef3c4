"""Names in a query that is being translated: the column that each means, and its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from tailrace.errors import InvalidError
from tailrace.views.query.trees import column_of, columns_in, outside_queries, renamed

_Type = exp.DataType.Type
# Whole numbers, and the digits of their largest value.
_WHOLE = {_Type.TINYINT: 3, _Type.SMALLINT: 5, _Type.INT: 10, _Type.BIGINT: 20}
_MOST_DIGITS = 38
_FLOATS = (_Type.FLOAT, _Type.DOUBLE)
_TEXTS = (_Type.CHAR, _Type.VARCHAR, _Type.TEXT)
# In each kind, the last type holds all values of the others.
_ORDERED = (
    (_Type.TINYINT, _Type.SMALLINT, _Type.INT, _Type.BIGINT),
    _FLOATS,
    _TEXTS,
    (_Type.DATE, _Type.TIMESTAMPTZ),
)
# Their values add up to the same in any order.
EXACT_TYPES = {*exp.DataType.INTEGER_TYPES, _Type.DECIMAL}


class UnsupportedError(Exception):
    """The query is right, but no rule covers a part of it: the view is recomputed in full."""


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """A column of a table that a query reads."""

    name: str
    type: exp.DataType
    nullable: bool = True


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a table's name in a query stands for."""

    name: str  # the same for each reference to the same table; of a view, that of the stored one
    columns: tuple[SourceColumn, ...] = field(compare=False)
    # For a view: what its readers see of the stored table, as a query over it.
    reader: exp.Query | None = field(default=None, compare=False)


Resolve = Callable[[exp.Table], Source]


@dataclass(frozen=True, kw_only=True)
class Visible:
    """A column that an expression may name."""

    relation: str | None
    name: str
    column: str
    # Only with its relation's name: of the two columns that USING joins by, one goes by its own.
    qualified: bool = False
    implicit: bool = False  # not shown by a star


@dataclass(kw_only=True)
class Scope:
    """The columns that a SELECT's expressions may name, and those of the query around it."""

    columns: list[Visible] = field(default_factory=list)
    outer: Scope | None = None
    calls: dict[str, str] = field(default_factory=dict)  # the plan's columns for functions

    def find(self, name: str, relation: str | None) -> str | None:
        """The plan's column; None if there is none of that name."""
        columns = {
            known.column
            for known in self.columns
            if known.name.casefold() == name.casefold()
            and (
                not known.qualified
                if relation is None
                else (known.relation or "").casefold() == relation.casefold()
            )
        }
        if len(columns) > 1:
            raise InvalidError(f"the column {name!r} is ambiguous: write it as table.{name}")
        return next(iter(columns), None)

    def bind(self, tree: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """A copy of an expression with the plan's columns in place of names.

        `aliases` has the items of the SELECT list for what may name them: HAVING, ORDER BY and so
        on. There they stand for names that no relation has.
        """
        holder = exp.Paren(this=tree.copy())
        columns = outside_queries(holder)
        for call in list(holder.find_all(exp.Anonymous)) if self.calls else []:
            known = self.calls.get(call.sql("spark"))
            if known is not None:
                call.replace(column_of(known))
        for column in columns:
            name = column.name.casefold()
            if aliases and name in aliases and not column.table and self.find(name, None) is None:
                column.replace(exp.paren(aliases[name].copy(), copy=False))
            else:
                column.replace(self._bound(column))
        result: exp.Expr = holder.this
        return result

    def _bound(self, column: exp.Column) -> exp.Expr:
        if isinstance(column.this, exp.Star):
            raise UnsupportedError(f"* inside an expression: {column.sql('spark')}")
        parts = [part.name for part in column.parts]
        scope: Scope | None = self
        while scope is not None:
            # The longest prefix that is a relation, then a column, then fields of a struct.
            for skip in range(min(len(parts) - 1, 2), -1, -1):
                relation = parts[skip - 1] if skip else None
                found = scope.find(parts[skip], relation)
                if found is not None:
                    return _fields(column_of(found), parts[skip + 1 :])
            scope = scope.outer
        known = sorted({visible.name for visible in self.columns})
        raise InvalidError(
            f"there is no column {column.sql('spark')!r} in this query; there are "
            + ", ".join(known[:20])
        )


def _fields(tree: exp.Expr, names: Iterable[str]) -> exp.Expr:
    for name in names:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return tree


class Names:
    """Gives out the plan's column names, and remembers their types."""

    def __init__(self) -> None:
        self._count = 0
        self.types: dict[str, exp.DataType] = {}
        self.not_null: set[str] = set()

    def new(self, base: str, kind: exp.DataType | None = None, *, not_null: bool = False) -> str:
        self._count += 1
        plain = re.sub(r"[^a-z0-9_]", "", base.lower())[:30].strip("_0123456789") or "c"
        name = f"{plain}_{self._count}"
        if kind is not None:
            self.types[name] = kind
        if not_null:
            self.not_null.add(name)
        return name

    def type_of(self, tree: exp.Expr) -> exp.DataType:
        """The type of an expression over the plan's columns, as far as it is known."""
        typed = {
            name: exp.Cast(this=exp.Null(), to=self.types[name].copy())
            for name in columns_in(tree)
            if name in self.types
        }
        annotated = annotate_types(renamed(tree, typed), dialect="spark")
        kind = annotated.type
        if not isinstance(kind, exp.DataType):
            return exp.DataType.build("unknown")
        # sqlglot calls a decimal with a double a decimal; to Spark it is a double.
        inexact = kind.this == _Type.DECIMAL and _inexact_type_in(annotated)
        return inexact or kind

    def common_type(self, *trees: exp.Expr) -> exp.DataType | None:
        """The type in which two values are compared; None if that might change either."""
        one, other = (
            self.types.get(tree.name) if isinstance(tree, exp.Column) else self.type_of(tree)
            for tree in trees
        )
        return common_type(one, other)

    def check_groupable(self, columns: Iterable[str]) -> None:
        """Refuse to group by maps: the rows of a group could not be found by them."""
        for column in columns:
            kind = self.types.get(column)
            if kind is not None and any(
                part.this == exp.DataType.Type.MAP for part in kind.find_all(exp.DataType)
            ):
                raise UnsupportedError("groups by a map, for which there is no equality")

    def is_exact(self, tree: exp.Expr) -> bool:
        """Whether an expression's values add up to the same in any order; False in doubt."""
        if isinstance(tree, exp.Column):
            return tree.name in self.types and self.types[tree.name].this in EXACT_TYPES
        if isinstance(tree, exp.Literal):
            return not tree.is_string and "e" not in tree.this.lower()
        if isinstance(tree, exp.Null):
            return True
        if isinstance(tree, exp.Paren | exp.Neg | exp.Abs):
            return self.is_exact(tree.this)
        if isinstance(tree, exp.Add | exp.Sub | exp.Mul | exp.Mod):
            return self.is_exact(tree.left) and self.is_exact(tree.right)
        if isinstance(tree, exp.Div):  # whole numbers give a double
            both = (tree.left, tree.right)
            return all(map(self.is_exact, both)) and any(map(self.is_decimal, both))
        if isinstance(tree, exp.Case):
            values = [branch.args["true"] for branch in tree.args["ifs"]]
            return all(map(self.is_exact, [*values, tree.args.get("default") or exp.Null()]))
        if isinstance(tree, exp.If):
            return all(
                map(self.is_exact, (tree.args["true"], tree.args.get("false") or exp.Null()))
            )
        if isinstance(tree, exp.Coalesce):
            return all(map(self.is_exact, (tree.this, *tree.expressions)))
        if isinstance(tree, exp.Cast):
            return tree.to.this in EXACT_TYPES
        return self.type_of(tree).this in exp.DataType.INTEGER_TYPES

    def is_decimal(self, tree: exp.Expr) -> bool:
        """Whether an expression's values are decimals; False in doubt."""
        if isinstance(tree, exp.Literal):
            return "." in tree.this
        if isinstance(tree, exp.Column):
            return tree.name in self.types and self.types[tree.name].is_type("decimal")
        if isinstance(tree, exp.Cast):
            return tree.to.is_type("decimal")
        inside = [tree.this, tree.args.get("expression")]
        return any(isinstance(part, exp.Expr) and self.is_decimal(part) for part in inside)


def _inexact_type_in(tree: exp.Expr) -> exp.DataType | None:
    """The type that makes a value other than a decimal, if some part of it has such a type."""
    kind = tree.type
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return exp.DataType.build("double") if "e" in tree.this.lower() else None
    if not isinstance(kind, exp.DataType) or kind.this in _TEXTS:
        return exp.DataType.build("unknown")
    if kind.this in _FLOATS:
        return exp.DataType.build("double")
    if kind.this != _Type.DECIMAL or isinstance(tree, exp.Cast):
        return None
    inexact = [found for part in tree.iter_expressions() if (found := _inexact_type_in(part))]
    return max(inexact, key=lambda found: found.this == _Type.UNKNOWN, default=None)


def common_type(one: exp.DataType | None, other: exp.DataType | None) -> exp.DataType | None:
    """The wider of two types; None if there is none that holds both, or one is not known.

    Spark compares a text with a number, or a bigint with a double, by converting one of them; then
    values that differ can equal the same third one: '1' and '01' are both 1. A key of one side
    would find only some of its rows on the other, so rules must not look for rows by it. Within
    one kind (exact numbers, floats, texts, moments) that cannot happen.
    """
    if one is None or other is None or _Type.UNKNOWN in (one.this, other.this):
        return None
    if one == other or other.this == _Type.NULL:
        return one
    if one.this == _Type.NULL:
        return other
    for kind in _ORDERED:
        if one.this in kind and other.this in kind:
            return max(one, other, key=lambda given: kind.index(given.this))
    return _common_decimal(one, other)


def _common_decimal(one: exp.DataType, other: exp.DataType) -> exp.DataType | None:
    digits = [_digits(one), _digits(other)]
    before = max((size[0] for size in digits if size), default=0)
    after = max((size[1] for size in digits if size), default=0)
    if None in digits or before + after > _MOST_DIGITS:
        return None
    return exp.DataType.build(f"decimal({before + after}, {after})", dialect="spark")


def _digits(given: exp.DataType) -> tuple[int, int] | None:
    """How many digits a number has before and after the point; None if it is not exact."""
    if given.this in _WHOLE:
        return _WHOLE[given.this], 0
    if given.this != _Type.DECIMAL:
        return None
    sizes = [int(part.name) for part in given.expressions] or [10]
    precision, scale = (*sizes, 0)[:2]
    return precision - scale, scale
