"""Names in a query that is being translated: the column that each means, and its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from tailrace.errors import InvalidError
from tailrace.views.query.common_type import common_type
from tailrace.views.query.trees import copied


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

    name: str  # the same for each reference to the same table
    columns: tuple[SourceColumn, ...]
    # For a view: a query over the stored table, whose source name is `name`.
    reader: exp.Query | None = None


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

    def bind(self, tree: exp.Expr) -> exp.Expr:
        """A copy of an expression with the plan's columns in place of names."""
        holder = exp.Paren(this=tree.copy())
        known = set(self.calls.values())
        self.put_calls(holder)
        for column in outside_queries(holder):
            if column.table or column.name not in known:
                column.replace(self._bound(column))
        result: exp.Expr = holder.this
        return result

    def put_calls(self, holder: exp.Expr) -> None:
        """Replace the functions that the plan has as columns."""
        for call in list(holder.find_all(exp.Anonymous)) if self.calls else []:
            column = self.calls.get(call.sql("spark"))
            if column is not None:
                call.replace(column_of(column))

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


def outside_queries(holder: exp.Expr) -> list[exp.Column]:
    """The columns of an expression outside of its subqueries."""
    return [c for c in holder.find_all(exp.Column) if not _is_inside_query(c, holder)]


def _is_inside_query(column: exp.Expr, holder: exp.Expr) -> bool:
    above = column.parent
    while above is not None and above is not holder:
        if isinstance(above, exp.Query):
            return True
        above = above.parent
    return False


def _fields(tree: exp.Expr, names: Iterable[str]) -> exp.Expr:
    for name in names:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return tree


def column_of(name: str) -> exp.Column:
    """A column of a plan as an expression."""
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


def columns_in(tree: exp.Expr) -> set[str]:
    """The plan's columns that an expression uses."""
    return {column.name for column in tree.find_all(exp.Column)}


def renamed(tree: exp.Expr, names: Mapping[str, exp.Expr]) -> exp.Expr:
    """A copy of an expression with other expressions in place of columns."""
    holder = exp.Paren(this=tree.copy())
    for column in list(holder.find_all(exp.Column)):
        if column.name in names:
            value = names[column.name].copy()
            # One value stays one, whatever is around it.
            loose = isinstance(value, _LOOSE) and not isinstance(value, exp.Paren)
            column.replace(exp.Paren(this=value) if loose else value)
    result: exp.Expr = holder.this
    return result


_LOOSE = (exp.Binary, exp.Unary, exp.Between, exp.In)


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The parts of an AND."""
    parts: list[exp.Expr] = []
    waiting = [] if tree is None else [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, exp.And):
            waiting += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The AND of conditions."""
    return connected(exp.And, [copied(c) for c in conditions]) if conditions else exp.true()


def any_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The OR of conditions."""
    return connected(exp.Or, [copied(c) for c in conditions]) if conditions else exp.false()


def connected(kind: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    """The AND or OR of parts in their order, as the lowest tree: others walk it by recursion."""
    if len(parts) == 1:
        return parts[0]
    sides = [connected(kind, part) for part in (parts[: len(parts) // 2], parts[len(parts) // 2 :])]
    held = [
        exp.Paren(this=side) if isinstance(side, exp.Connector) and type(side) is not kind else side
        for side in sides
    ]
    return kind(this=held[0], expression=held[1])


def balanced(tree: exp.Query) -> exp.Query:
    """A query with its long ANDs and ORs as the lowest trees."""
    for connector in list(tree.find_all(exp.And, exp.Or)):
        kind = type(connector)
        if type(connector.parent) is kind:
            continue
        parts: list[exp.Expr] = []
        waiting: list[exp.Expr] = [connector]
        while waiting:
            part = waiting.pop()
            if type(part) is kind:
                waiting += [part.right, part.left]
            else:
                parts.append(part)
        connector.replace(connected(kind, parts))
    return tree


EXACT_TYPES = {
    *exp.DataType.INTEGER_TYPES,
    exp.DataType.Type.DECIMAL,
}


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
        kind = annotate_types(renamed(tree, typed), dialect="spark").type
        return kind if isinstance(kind, exp.DataType) else exp.DataType.build("unknown")

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
