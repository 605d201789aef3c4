"""From SQL to a plan.

Owned here: which operators each clause of a SELECT becomes, and in which order. Subqueries in
conditions become joins (`subqueries`). What no operator covers raises an UnsupportedError that
names the expression; a mistake in the query raises an InvalidError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.spark_sql.functions import DAY, INSTANT, nondeterministic_calls
from tailrace.views.query.aggregates import Groups, is_aggregate, over_nothing
from tailrace.views.query.from_clause import REFUSED, Env, From, Relations, Result
from tailrace.views.query.optimize import filtered
from tailrace.views.query.plan import (
    Aggregate,
    Item,
    Limit,
    OutputColumn,
    Query,
)
from tailrace.views.query.scope import Resolve, Scope, UnsupportedError
from tailrace.views.query.set_operations import combined
from tailrace.views.query.subqueries import Subqueries
from tailrace.views.query.trees import column_of, columns_in, conjuncts, renamed
from tailrace.views.query.windows import add_time_window, add_windows


def translate(query: exp.Query, resolve: Resolve) -> tuple[Query, dict[str, exp.DataType]]:
    """The plan of a query, and the types of its columns as far as they are known."""
    for name in nondeterministic_calls(query):
        if name.removesuffix("()") not in DAY | INSTANT:  # those are fixed for a refresh
            raise UnsupportedError(f"{name} does not give the same value twice")
    translator = Translator(resolve)
    table = translator.query(query, {}, None)
    if table.open:
        raise InvalidError(f"cannot read {table.open[0].sql('spark')}")
    names = [output.name.casefold() for output in table.outputs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidError(f"two columns are called {twice[0]!r}: give one another name with AS")
    return Query(root=table.node, outputs=tuple(table.outputs)), translator.names.types


@dataclass(kw_only=True)
class Late:
    """What a SELECT computes after WHERE."""

    items: list[Item]
    having: exp.Expr | None
    qualify: exp.Expr | None
    orders: list[exp.Ordered]

    def trees(self) -> list[exp.Expr]:
        maybe = (self.having, self.qualify)
        return [
            *(value for _, value in self.items),
            *(tree for tree in maybe if tree is not None),
            *(ordered.this for ordered in self.orders),
        ]

    def values_where(self, condition: exp.Expr) -> None:
        """Turn a condition on groups into values that are NULL where it is not true."""
        self.items = [
            (name, exp.Case(ifs=[exp.If(this=condition.copy(), true=value)]))
            for name, value in self.items
        ]
        self.having = None

    def rewrite(self, change: Callable[[exp.Expr], exp.Expr]) -> None:
        self.items = [(name, change(value)) for name, value in self.items]
        self.orders = [_with_this(ordered, change(ordered.this)) for ordered in self.orders]
        self.having = None if self.having is None else change(self.having)
        self.qualify = None if self.qualify is None else change(self.qualify)


class Translator(Relations):
    """Translates one query; column names are unique within it."""

    # --- queries ----------------------------------------------------------------------------

    def query(self, query: exp.Expr, env: Env, outer: Scope | None) -> Result:
        """A SELECT, a set operation, or one in parentheses."""
        env = self.with_queries(query, env)
        if isinstance(query, exp.Subquery):
            inner = self.query(query.this, env, outer)
            return self._limited(query, inner)
        if isinstance(query, exp.SetOperation):
            return self._limited(query, self._set_operation(query, env))
        if isinstance(query, exp.Values):
            return self.values_of(query)
        if isinstance(query, exp.Select):
            return self._select(query, env, outer)
        raise UnsupportedError(f"no rule for {query.sql('spark')[:80]}")

    def _set_operation(self, query: exp.SetOperation, env: Env) -> Result:
        # A long chain leans to the left.
        chain = [query]
        while isinstance(chain[-1].left, exp.SetOperation) and not any(
            chain[-1].left.args.get(clause) for clause in ("with_", "order", "limit", "offset")
        ):
            chain.append(chain[-1].left)
        result = self.query(chain[-1].left, env, None)
        for one in reversed(chain):
            result = combined(self, one, result, self.query(one.right, env, None))
        return result

    # --- SELECT -----------------------------------------------------------------------------

    def _select(self, select: exp.Select, env: Env, outer: Scope | None) -> Result:
        for refused in REFUSED:
            if select.args.get(refused):
                raise UnsupportedError(f"no rule for {refused} in {select.sql('spark')[:60]}")
        from_, scope = self.from_clause(select, env, outer)
        add_time_window(self, select, from_, scope)
        subqueries = Subqueries(translator=self, env=env, from_=from_, scope=scope)
        open_conditions: list[exp.Expr] = []
        where = select.args.get("where")
        for condition in conjuncts(where.this if where else None):
            bound = subqueries.condition(scope.bind(condition))
            if bound is None:
                continue
            if columns_in(bound) <= from_.columns:
                from_.conditions.append(bound)
            else:
                open_conditions.append(bound)
        return self._after_where(select, subqueries, open_conditions)

    def _after_where(
        self, select: exp.Select, subqueries: Subqueries, open_conditions: list[exp.Expr]
    ) -> Result:
        late = self._late(select, subqueries)
        result = Result(node=subqueries.from_.node(), outputs=[], open=open_conditions)
        group = select.args.get("group")
        if group is not None or any(is_aggregate(tree) for tree in late.trees()):
            self._grouped(result, late, group, subqueries)
        elif late.having is not None:
            raise InvalidError("HAVING needs a GROUP BY or an aggregate function")
        result.node = add_windows(self, select, result.node, late)
        if late.qualify is not None:
            result.node = filtered(result.node, late.qualify)
        self._shown(result, late, distinct=select.args.get("distinct") is not None)
        return self._limited(select, result, late.orders)

    def _late(self, select: exp.Select, subqueries: Subqueries) -> Late:
        """What is computed after WHERE, bound to its columns."""
        scope = subqueries.scope
        items = self._items(select, subqueries)
        aliases = _by_name(items)
        having, qualify, order, distinct = (
            select.args.get(part) for part in ("having", "qualify", "order", "distinct")
        )
        if distinct is not None and distinct.args.get("on"):
            raise UnsupportedError("DISTINCT ON")
        limited = select.args.get("limit") is not None or select.args.get("offset") is not None
        return Late(
            items=items,
            having=scope.bind(having.this, aliases) if having else None,
            qualify=scope.bind(qualify.this, aliases) if qualify else None,
            # Without a LIMIT the order means nothing: rows are a bag.
            orders=self._orders(order, scope, items) if order and limited else [],
        )

    def _grouped(
        self, result: Result, late: Late, group: exp.Group | None, subqueries: Subqueries
    ) -> None:
        """Group the rows, and rewrite what comes after in terms of the groups."""
        if group is None and result.open and late.having is not None:
            # Where nothing matches there is a row too, if the condition is true of no rows.
            if late.having.find(exp.Query):
                raise UnsupportedError("a subquery in the HAVING of a correlated subquery")
            late.values_where(late.having)
        # A subquery in HAVING comes after the groups, so it takes no part in them.
        trees = [
            tree.transform(lambda part: exp.Null() if isinstance(part, exp.Query) else part)
            for tree in late.trees()
        ]
        groups = Groups(self, result.node)
        result.open = groups.group(group, subqueries.scope, late.items, trees, result.open)
        result.node, result.single = groups.node, group is None
        if result.single and result.open:
            result.on_empty = over_nothing(late.items[0][1])
        scalars = frozenset(subqueries.columns)
        late.rewrite(lambda tree: groups.after(tree, scalars))
        if late.having is not None:
            holder = From(types=self.names.types, parts=[result.node])
            over_groups = replace(subqueries, from_=holder)
            for condition in conjuncts(late.having):
                left = over_groups.condition(condition)
                if left is not None:
                    holder.conditions.append(left)
            result.node = holder.node()
            late.having = None

    def _shown(self, result: Result, late: Late, *, distinct: bool) -> None:
        """The outputs, and what ORDER BY or an open condition needs beside them."""
        needed = {c for tree in result.open for c in columns_in(tree)}
        extra = sorted(needed & set(result.node.columns))
        if distinct and not extra:
            project = self.projected(result.node, late.items)
            columns = project.columns
            self.names.check_groupable(columns)
            result.node = Aggregate(input=project, keys=columns, calls=())
            late.orders = self._orders_of_outputs(late.orders, late.items, columns)
        else:
            hidden = [(f"o{n}", ordered.this) for n, ordered in enumerate(late.orders)]
            beside = [(c, column_of(c)) for c in extra]
            result.node = self.projected(result.node, [*late.items, *hidden, *beside])
            places = result.node.columns[len(late.items) :]
            late.orders = [
                _with_this(ordered, column_of(place))
                for ordered, place in zip(late.orders, places, strict=False)
            ]
            names = {
                old: column_of(new) for old, new in zip(extra, places[len(hidden) :], strict=True)
            }
            result.open = [renamed(tree, names) for tree in result.open]
        result.outputs = [
            OutputColumn(name=name, column=column)
            for (name, _), column in zip(late.items, result.node.columns, strict=False)
        ]

    def _orders_of_outputs(
        self,
        orders: list[exp.Ordered],
        items: list[Item],
        columns: tuple[str, ...],
    ) -> list[exp.Ordered]:
        column_of_value = dict(zip((value for _, value in items), columns, strict=True))
        if not all(ordered.this in column_of_value for ordered in orders):
            raise UnsupportedError("ORDER BY of SELECT DISTINCT by what is not selected")
        return [_with_this(ordered, column_of(column_of_value[ordered.this])) for ordered in orders]

    def _items(self, select: exp.Select, subqueries: Subqueries) -> list[Item]:
        """The SELECT list: names and bound expressions."""
        scope = subqueries.scope
        items: list[Item] = []
        self._expand_stars(select, scope)
        for tree in select.expressions:
            value = tree.this if isinstance(tree, exp.Alias | exp.Aliases) else tree
            if isinstance(tree, exp.Aliases) or isinstance(value, exp.UDTF):
                several = isinstance(tree, exp.Aliases)
                names = [one.name for one in tree.expressions] if several else [tree.alias]
                call = scope.bind(value)
                is_outer = isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter)
                names = [name for name in names if name]
                shown = self.explode(call, subqueries.from_, scope, names, None, outer=is_outer)
                items += [(one.name, column_of(one.column)) for one in shown]
            else:
                name = tree.alias or self._name_of(value)
                items.append((name, subqueries.value(scope.bind(value))))
        return items

    def _name_of(self, value: exp.Expr) -> str:
        if isinstance(value, exp.Anonymous) and value.name.lower() == "window":
            return "window"
        if isinstance(value, exp.Column | exp.Dot):
            return value.name or value.expression.name
        return value.sql("spark")

    def _expand_stars(self, select: exp.Select, scope: Scope) -> None:
        """Spell out * in the query itself: columns added to a table later do not join the view."""
        columns: list[exp.Expr] = []
        for tree in select.expressions:
            star = tree.this if isinstance(tree, exp.Column) else tree
            columns += self._star(tree, star, scope) if isinstance(star, exp.Star) else [tree]
        select.set("expressions", columns)

    def _star(self, tree: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Expr]:
        if star.args.get("except_") or star.args.get("replace") or star.args.get("rename"):
            raise UnsupportedError("* EXCEPT")
        table = tree.table if isinstance(tree, exp.Column) else None
        columns: list[exp.Expr] = []
        seen: set[str] = set()
        for visible in scope.columns:
            if table and (visible.relation or "").casefold() != table.casefold():
                continue
            if visible.implicit or (not table and visible.qualified):
                continue
            if visible.column not in seen:
                seen.add(visible.column)
                relation = visible.relation and exp.to_identifier(visible.relation, quoted=True)
                name = exp.to_identifier(visible.name, quoted=True)
                columns.append(exp.column(name, table=relation))
        if not columns:
            raise InvalidError(f"{tree.sql('spark')}: there is no such table in the FROM")
        return columns

    def bound_late(self, tree: exp.Expr, scope: Scope, items: Sequence[Item]) -> exp.Expr:
        """Bind what may also be an item of the SELECT list: its number, or its name."""
        if isinstance(tree, exp.Literal) and not tree.is_string:
            return items[int(tree.this) - 1][1].copy()
        return scope.bind(tree, _by_name(items))

    def _orders(self, order: exp.Order, scope: Scope, items: Sequence[Item]) -> list[exp.Ordered]:
        bound_orders = []
        aliases = _by_name(items)
        for ordered in order.expressions:
            tree = ordered.this
            # Here an alias comes before a column.
            is_name = isinstance(tree, exp.Column) and not tree.table
            alias = aliases.get(tree.name.casefold()) if is_name else None
            bound = alias.copy() if alias is not None else self.bound_late(tree, scope, items)
            bound_orders.append(_with_this(ordered, bound))
        return bound_orders

    # --- LIMIT ------------------------------------------------------------------------------

    def _limited(
        self, query: exp.Expr, result: Result, orders: list[exp.Ordered] | None = None
    ) -> Result:
        limit, offset = query.args.get("limit"), query.args.get("offset")
        if limit is None and offset is None:
            return result
        if orders is None:
            scope = Scope(columns=result.visible(None))
            order = query.args.get("order")
            items = [(o.name, column_of(o.column)) for o in result.outputs]
            orders = self._orders(order, scope, items) if order else []
        if result.open:
            raise UnsupportedError("LIMIT in a correlated subquery")
        shown = [column_of(output.column) for output in result.outputs]
        known = {ordered.this.sql() for ordered in orders}
        ties = [exp.Ordered(this=c, nulls_first=True) for c in shown if c.sql() not in known]
        node = Limit(
            input=result.node,
            order=(*orders, *ties),
            count=None if limit is None else _number(limit.expression),
            offset=0 if offset is None else _number(offset.expression),
        )
        return replace(result, node=node, single=node.count == 1)


def _number(tree: exp.Expr) -> int:
    if isinstance(tree, exp.Literal) and not tree.is_string and tree.this.isdigit():
        return int(tree.this)
    raise UnsupportedError(f"LIMIT {tree.sql('spark')}: only a number")


def _by_name(items: Sequence[Item]) -> dict[str, exp.Expr]:
    return {name.casefold(): value for name, value in items}


def _with_this(ordered: exp.Ordered, this: exp.Expr) -> exp.Ordered:
    copy = ordered.copy()
    copy.set("this", this)
    return copy
