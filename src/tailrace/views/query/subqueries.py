"""Subqueries in conditions and values, as joins: EXISTS, IN and scalar ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.views.query.aggregates import STRICT
from tailrace.views.query.plan import (
    Aggregate,
    Filter,
    InnerJoin,
    JoinKind,
    KeyJoin,
    Limit,
    Node,
    OneRow,
    Project,
    Window,
)
from tailrace.views.query.scope import EXACT_TYPES, Scope, UnsupportedError
from tailrace.views.query.trees import all_of, column_of, columns_in, conjuncts

if TYPE_CHECKING:
    from tailrace.views.query.from_clause import Env, From, Result
    from tailrace.views.query.translate import Translator

_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ)


@dataclass(frozen=True, kw_only=True)
class Subqueries:
    """The subqueries of one SELECT, each of which becomes a part of its FROM."""

    translator: Translator
    env: Env
    from_: From
    scope: Scope
    # The columns of scalar subqueries.
    columns: set[str] = field(default_factory=set)

    def condition(self, condition: exp.Expr) -> exp.Expr | None:
        """A condition over bound columns, without subqueries; None if it has become a join."""
        if not condition.find(exp.Query):
            return condition
        positive, inner = True, condition
        while isinstance(inner, exp.Not | exp.Paren):
            positive ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.Exists):
            self._exists(inner.this, positive=positive)
            return None
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            self._in(inner, positive=positive)
            return None
        if isinstance(inner, exp.And) and positive:
            left = [self.condition(part) for part in conjuncts(inner)]
            kept = [part for part in left if part is not None]
            return all_of(kept) if kept else None
        return self._without_scalars(condition, is_condition=True)

    def value(self, tree: exp.Expr) -> exp.Expr:
        """An expression of a SELECT list over bound columns, without subqueries."""
        return self._without_scalars(tree, is_condition=False)

    def _result(self, query: exp.Expr) -> Result:
        return self.translator.query(query, self.env, self.scope)

    def _join(self, kind: JoinKind, result: Result, conditions: Sequence[exp.Expr] = ()) -> None:
        """Join a subquery to what the FROM has."""
        left = self.from_.collapse()
        known = {*left.columns, *result.node.columns}
        for condition in result.open:
            if not columns_in(condition) <= known:
                raise UnsupportedError(
                    f"a subquery that refers to a query further out: {condition.sql('spark')}"
                )
        every = [*result.open, *conditions]
        self.from_.parts = [self.translator.key_join(kind, left, result.node, every)]

    # --- EXISTS and IN ----------------------------------------------------------------------

    def _exists(self, query: exp.Expr, *, positive: bool) -> None:
        result = self._result(query)
        if result.single:
            raise UnsupportedError("EXISTS of an aggregate, which gives a row even over no rows")
        self._join(JoinKind.SEMI if positive else JoinKind.ANTI, result)

    def _in(self, tree: exp.In, *, positive: bool) -> None:
        query = tree.args["query"]
        result = self._result(query.this if isinstance(query, exp.Subquery) else query)
        needles = tree.this
        while isinstance(needles, exp.Paren):
            needles = needles.this
        values = needles.expressions if isinstance(needles, exp.Tuple) else [needles]
        if len(values) != len(result.outputs):
            raise InvalidError(f"{len(values)} values are compared with {len(result.outputs)}")
        if result.single and result.open and (not positive or result.on_empty is not None):
            # Where nothing matches there is still a row, with a 0 or a NULL.
            raise UnsupportedError("IN of an aggregate, which gives a row even over no rows")
        conditions = []
        for value, output in zip(values, result.outputs, strict=True):
            other = column_of(output.column)
            equal: exp.Expr = exp.EQ(this=value.copy(), expression=other)
            if not positive and not (self._not_null(value) and self._not_null(other)):
                # NOT IN is not true beside a NULL.
                equal = exp.or_(equal, _is_null(value.copy()), _is_null(other.copy()), copy=False)
            conditions.append(equal)
        self._join(JoinKind.SEMI if positive else JoinKind.ANTI, result, conditions)

    def _not_null(self, tree: exp.Expr) -> bool:
        if isinstance(tree, exp.Literal):
            return True
        return isinstance(tree, exp.Column) and tree.name in self.translator.names.not_null

    # --- scalar ones ------------------------------------------------------------------------

    def _without_scalars(self, tree: exp.Expr, *, is_condition: bool) -> exp.Expr:
        holder = exp.Paren(this=tree)
        while (query := holder.find(exp.Query)) is not None:
            if isinstance(query.parent, exp.Exists | exp.In):
                raise UnsupportedError(
                    f"{query.parent.sql('spark')[:80]} inside another expression"
                )
            strict = is_condition and self._is_strict(query, holder)
            inner = query.this if isinstance(query, exp.Subquery) else query
            query.replace(self._scalar(inner, strict=strict))
        result: exp.Expr = holder.this
        return result

    def _is_strict(self, query: exp.Expr, holder: exp.Expr) -> bool:
        """Whether the condition is never true where the subquery's value is NULL."""
        above = query.parent
        while isinstance(above, STRICT) and above is not holder:
            above = above.parent
        return isinstance(above, _COMPARISONS) and above.parent is holder

    def _scalar(self, query: exp.Expr, *, strict: bool) -> exp.Expr:
        result = self._result(query)
        if len(result.outputs) != 1:
            raise InvalidError("a scalar subquery needs one column")
        column = column_of(result.outputs[0].column)
        node = result.node
        if not result.single and not is_single_row(node, self.from_.types):
            raise UnsupportedError(f"the subquery {query.sql('spark')[:60]} may have several rows")
        self.columns.update(node.columns)
        known = self.from_.columns | set(node.columns)
        closed = all(columns_in(c) <= known for c in result.open)
        always = is_one_row(node) and not result.open
        if always or (strict and closed and result.on_empty is None):
            # Where there is no row, the condition is not true.
            self.from_.parts.append(node)
            self.from_.conditions += result.open
            return column
        if result.on_empty is None:
            self._join(JoinKind.LEFT, result)
            return column
        node, marker = self.translator.with_column(node, exp.true(), "found")
        self.columns.add(marker)
        self._join(JoinKind.LEFT, replace(result, node=node))
        empty = exp.If(this=_is_null(column_of(marker)), true=result.on_empty)
        return exp.paren(exp.Case(ifs=[empty], default=column), copy=False)


def _is_null(tree: exp.Expr) -> exp.Expr:
    return exp.Is(this=tree, expression=exp.Null())


Types = Mapping[str, exp.DataType]


def is_one_row(node: Node) -> bool:
    """Exactly one: an aggregate of everything."""
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys


def is_single_row(node: Node, types: Types) -> bool:
    """At most one. `types` are those of the plan's columns, as far as they are known."""
    if isinstance(node, Aggregate):
        return set(node.keys) <= _pinned(node.input, types)
    if isinstance(node, Limit) and node.count is not None:
        return node.count <= 1 or is_single_row(node.input, types)
    if isinstance(node, InnerJoin):
        return all(is_single_row(part, types) for part in node.parts)
    if isinstance(node, KeyJoin) and node.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return is_single_row(node.left, types)
    if isinstance(node, Filter | Project | Window | Limit):
        return is_single_row(node.input, types)
    return isinstance(node, OneRow)


def _pinned(node: Node, types: Types) -> set[str]:
    """Columns that a condition fixes to one value in all rows."""
    if isinstance(node, Filter):
        pairs = (_compared(part, types) for part in conjuncts(node.condition))
        return _pinned(node.input, types) | {column for column in pairs if column is not None}
    if isinstance(node, Project):
        below = _pinned(node.input, types)
        return {
            n for n, value in node.items if isinstance(value, exp.Column) and value.name in below
        }
    if isinstance(node, InnerJoin):
        columns = {column for part in node.parts for column in _pinned(part, types)}
        return columns | {column for column, same in node.equal.items() if same & columns}
    if isinstance(node, KeyJoin) and node.kind is not JoinKind.FULL:
        return _pinned(node.left, types)
    return set()


def _compared(condition: exp.Expr, types: Types) -> str | None:
    """The column that a condition fixes, by a literal of its type that only one value equals."""
    if not isinstance(condition, exp.EQ):
        return None
    sides = [condition.left, condition.right]
    if isinstance(sides[0], exp.Literal):
        sides.reverse()
    column, literal = sides
    if not isinstance(column, exp.Column) or not isinstance(literal, exp.Literal):
        return None
    kind = types.get(column.name)
    if kind is None:
        return None
    if literal.is_string:
        return column.name if kind == exp.DataType.build("string", dialect="spark") else None
    exact = kind.this in EXACT_TYPES and "e" not in literal.this.lower()
    return column.name if exact else None
