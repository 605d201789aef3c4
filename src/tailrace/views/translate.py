"""From SQL to a plan.

Owned here: what each clause of a SELECT means in operators, and in which order. Subqueries in
conditions become joins (`subqueries`). What no operator covers is an UnsupportedError that names
the expression, and a mistake in the query an InvalidError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.views.aggregates import Aggregating, is_aggregate
from tailrace.views.plan import (
    Aggregate,
    Explode,
    InnerJoin,
    JoinKind,
    KeyJoin,
    Limit,
    Node,
    OneRow,
    Output,
    Project,
    Query,
    Scan,
    SetKind,
    SetOperation,
    Union,
    Values,
    Window,
)
from tailrace.views.push_filters import filtered
from tailrace.views.scope import (
    Names,
    Resolve,
    Scope,
    Source,
    UnsupportedError,
    Visible,
    all_of,
    column_of,
    columns_in,
    conjuncts,
    outside_queries,
    renamed,
)

# Window functions whose result depends on the order of rows that the ORDER BY leaves open.
_ORDERED = (
    exp.RowNumber,
    exp.Lead,
    exp.Lag,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.Ntile,
)
_CHANGING = {
    "rand",
    "random",
    "randn",
    "uuid",
    "current_user",
    "user",
    "monotonically_increasing_id",
    "input_file_name",
    "spark_partition_id",
    "shuffle",
    "reflect",
    "java_method",
}
_REFUSED = ("pivots", "sample", "match", "connect", "cluster", "distribute", "sort")


def translate(query: exp.Query, resolve: Resolve) -> tuple[Query, dict[str, exp.DataType]]:
    """The plan of a query, and the types of the plan's columns as far as they are known."""
    for call in query.find_all(exp.Func):
        name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
        if name.lower() in _CHANGING:
            raise UnsupportedError(f"{name.lower()}() does not give the same value twice")
    made = Translator(resolve)
    table = made.query(query, {}, None)
    if table.open:
        raise InvalidError(f"cannot read {table.open[0].sql('spark')}")
    names = [output.name.casefold() for output in table.outputs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidError(f"two columns are called {twice[0]!r}: give one another name with AS")
    return Query(root=table.node, outputs=tuple(table.outputs)), made.names.types


@dataclass(kw_only=True)
class Result:
    """A translated query or subquery."""

    node: Node
    outputs: list[Output]
    # Conditions on columns of the query around it, which are left for a join to check.
    open: list[exp.Expr] = field(default_factory=list)
    # Whether it is exactly one row, or at most one for each value of what it is joined by.
    single: bool = False
    # What its first output is where no row is: a count is 0 then.
    on_empty: exp.Expr | None = None


@dataclass(frozen=True, kw_only=True)
class Common:
    """A WITH's query, and the WITH queries that it may refer to."""

    query: exp.Query
    columns: list[str]
    env: Mapping[str, Common]


Env = Mapping[str, Common]


@dataclass(kw_only=True)
class From:
    """What a FROM has come to: inputs of an inner join, and its conditions."""

    parts: list[Node] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)

    def node(self) -> Node:
        """Everything so far as one node."""
        return join_of(self.parts, self.conditions)

    def collapse(self) -> Node:
        made = self.node()
        self.parts, self.conditions = [made], []
        return made

    @property
    def columns(self) -> set[str]:
        return {column for part in self.parts for column in part.columns}


def join_of(parts: list[Node], conditions: list[exp.Expr]) -> Node:
    """An inner join, with conditions on one input brought to that input."""
    left = []
    parts = list(parts)
    for condition in conditions:
        used = columns_in(condition)
        for place, part in enumerate(parts):
            if used and used <= set(part.columns):
                parts[place] = filtered(part, condition)
                break
        else:
            left.append(condition)
    if len(parts) == 1:
        return filtered(parts[0], all_of(left)) if left else parts[0]
    columns = tuple(column for part in parts for column in part.columns)
    return InnerJoin(columns=columns, parts=tuple(parts), conditions=tuple(left))


class Translator:
    """Translates one query; column names are unique within it."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self.names = Names()

    # --- queries ----------------------------------------------------------------------------

    def query(self, query: exp.Expr, env: Env, outer: Scope | None) -> Result:
        """A SELECT, a set operation, or one in parentheses."""
        env = self._with(query, env)
        if isinstance(query, exp.Subquery):
            inner = self.query(query.this, env, outer)
            return self._limited(query, inner)
        if isinstance(query, exp.SetOperation):
            return self._limited(query, self._set_operation(query, env))
        if isinstance(query, exp.Values):
            return self._values(query, [])
        if isinstance(query, exp.Select):
            return self._select(query, env, outer)
        raise UnsupportedError(f"no rule for {query.sql('spark')[:80]}")

    def _with(self, query: exp.Expr, env: Env) -> Env:
        clause = query.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise UnsupportedError("WITH RECURSIVE")
        made = dict(env)
        for cte in clause.expressions:
            columns = [column.name for column in cte.args["alias"].columns]
            name = cte.alias.casefold()
            made[name] = Common(query=cte.this, columns=columns, env=dict(made))
        return made

    def _set_operation(self, query: exp.SetOperation, env: Env) -> Result:
        left, right = (self.query(part, env, None) for part in (query.left, query.right))
        if len(left.outputs) != len(right.outputs):
            raise InvalidError("both sides of a set operation need the same number of columns")
        nodes = [self._aligned(result) for result in (left, right)]
        names = [output.name for output in left.outputs]
        if query.args.get("by_name"):
            raise UnsupportedError("UNION BY NAME")
        columns = tuple(self._same_type(nodes, place, name) for place, name in enumerate(names))
        distinct = bool(query.args.get("distinct"))
        node: Node
        if isinstance(query, exp.Union):
            parts = [part for n in nodes for part in (n.parts if isinstance(n, Union) else (n,))]
            node = Union(columns=columns, parts=tuple(parts))
            if distinct:
                node = Aggregate(columns=columns, input=node, keys=columns, calls=())
        else:
            word = "except" if isinstance(query, exp.Except) else "intersect"
            kind = SetKind(word if distinct else f"{word} all")
            node = SetOperation(columns=columns, kind=kind, left=nodes[0], right=nodes[1])
        outputs = [Output(name=n, column=c) for n, c in zip(names, columns, strict=True)]
        return Result(node=node, outputs=outputs)

    def _same_type(self, nodes: list[Node], place: int, name: str) -> str:
        kinds = [self.names.types.get(node.columns[place]) for node in nodes]
        known = kinds[0] is not None and kinds[0] == kinds[1]
        return self.names.new(name, kinds[0] if known else None)

    def _aligned(self, result: Result) -> Node:
        """A node with exactly the outputs, in their order."""
        wanted = tuple(output.column for output in result.outputs)
        if result.node.columns == wanted:
            return result.node
        return self.projected(result.node, [(o.name, column_of(o.column)) for o in result.outputs])

    def projected(self, node: Node, items: list[tuple[str, exp.Expr]]) -> Project:
        """A projection; a column that is only passed on gets a new name, too."""
        made = []
        for base, value in items:
            passed = isinstance(value, exp.Column)
            kind = self.names.types.get(value.name) if passed else self.names.type_of(value)
            keeps = passed and value.name in self.names.not_null
            made.append((self.names.new(base, kind, not_null=keeps), value))
        return Project(columns=tuple(name for name, _ in made), input=node, items=tuple(made))

    def _values(self, values: exp.Values, aliases: list[str]) -> Result:
        width = len(values.expressions[0].expressions)
        names = aliases or [f"col{n + 1}" for n in range(width)]
        columns = tuple(self.names.new(name) for name in names)
        node = Values(columns=columns, rows=values)
        outputs = [Output(name=n, column=c) for n, c in zip(names, columns, strict=True)]
        return Result(node=node, outputs=outputs)

    # --- FROM -------------------------------------------------------------------------------

    def _from(self, select: exp.Select, env: Env, outer: Scope | None) -> tuple[From, Scope]:
        scope = Scope(outer=outer)
        found = From()
        first = select.args.get("from_")
        if first is None:
            found.parts.append(OneRow(columns=()))
            return found, scope
        self._add(first.this, found, scope, env)
        for join in select.args.get("joins") or ():
            self._join(join, found, scope, env)
        for lateral in select.args.get("laterals") or ():
            self._lateral_view(lateral, found, scope)
        return found, scope

    def _add(self, tree: exp.Expr, found: From, scope: Scope, env: Env) -> None:
        node, visible = self._relation(tree, env)
        found.parts += node.parts if isinstance(node, InnerJoin) else [node]
        if isinstance(node, InnerJoin):
            found.conditions += node.conditions
        scope.columns += visible

    def _relation(self, tree: exp.Expr, env: Env) -> tuple[Node, list[Visible]]:
        for refused in _REFUSED:
            if tree.args.get(refused):
                raise UnsupportedError(f"no rule for {tree.sql('spark')[:80]}")
        if isinstance(tree, exp.Table):
            return self._table(tree, env)
        if isinstance(tree, exp.Values):
            alias = tree.args.get("alias")
            result = self._values(tree, [c.name for c in alias.columns] if alias else [])
            return result.node, _visible(result, tree.alias or None)
        if isinstance(tree, exp.Subquery):
            if tree.args.get("joins"):
                raise UnsupportedError("a join in parentheses")
            result = self.query(tree.this, self._with(tree, env), None)
            result = _renamed_outputs(
                result,
                [c.name for c in tree.args["alias"].columns] if tree.args.get("alias") else [],
            )
            return result.node, _visible(result, tree.alias or None)
        raise UnsupportedError(f"no rule for {tree.sql('spark')[:80]}")

    def _table(self, table: exp.Table, env: Env) -> tuple[Node, list[Visible]]:
        if table.args.get("joins"):
            raise UnsupportedError("a join in parentheses")
        alias = table.alias or table.name
        common = env.get(table.name.casefold()) if not table.db else None
        if common is not None:
            result = self.query(common.query, common.env, None)
            result = _renamed_outputs(result, common.columns)
            return result.node, _visible(result, alias)
        if table.args.get("version") or table.args.get("when"):
            raise InvalidError("a view reads its sources as they are: leave VERSION AS OF out")
        source = self._resolve(table)
        node, visible = self.scan(source, alias)
        given = table.args["alias"].columns if table.args.get("alias") else []
        if given:
            visible = [replace(v, name=new.name) for v, new in zip(visible, given, strict=True)]
        return node, visible

    def scan(self, source: Source, alias: str) -> tuple[Node, list[Visible]]:
        """A read of a table; of a view, of its stored table as the view's readers see it."""
        if source.reader is not None:
            stored = replace(source, reader=None)
            inner = Translator(lambda _table: stored)  # it reads nothing else
            inner.names = self.names
            result = inner.query(source.reader, {}, None)
            return result.node, _visible(result, alias)
        columns = tuple(
            self.names.new(column.name, column.type, not_null=not column.nullable)
            for column in source.columns
        )
        fields = tuple(column.name for column in source.columns)
        node = Scan(columns=columns, source=source.name, fields=fields)
        visible = [
            Visible(relation=alias, name=name, column=column)
            for name, column in zip(fields, columns, strict=True)
        ]
        return node, visible

    def _join(self, join: exp.Join, found: From, scope: Scope, env: Env) -> None:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method or isinstance(join.this, exp.Lateral) or kind in ("ASOF", "ARRAY"):
            raise UnsupportedError(f"no rule for {join.sql('spark')[:80]}")
        node, visible = self._relation(join.this, env)
        before = list(scope.columns)
        together = Scope(columns=[*before, *visible], outer=scope.outer)
        conditions = [together.bind(c) for c in conjuncts(join.args.get("on")) if c.sql() != "TRUE"]
        using = [name.name for name in join.args.get("using") or ()]
        pairs = [(Scope(columns=before), Scope(columns=visible), name) for name in using]
        merged = []
        for left_scope, right_scope, name in pairs:
            left, right = left_scope.find(name, None), right_scope.find(name, None)
            if left is None or right is None:
                raise InvalidError(f"USING ({name}): both sides need that column")
            conditions.append(exp.EQ(this=column_of(left), expression=column_of(right)))
            merged.append((name, left, right))
        if any(c.find(exp.Query) for c in conditions):
            raise UnsupportedError("a subquery in an ON condition")
        if kind in ("SEMI", "ANTI"):
            left_node = found.collapse()
            found.parts = [self.key_join(JoinKind(kind.lower()), left_node, node, conditions)]
            return
        if side in ("", "INNER") and kind in ("", "INNER", "CROSS"):
            found.parts += node.parts if isinstance(node, InnerJoin) else [node]
            found.conditions += [
                *(node.conditions if isinstance(node, InnerJoin) else ()),
                *conditions,
            ]
            self._show(scope, visible, merged, keep_right=False)
            return
        left_node = found.collapse()
        if side == "LEFT":
            made = self.key_join(JoinKind.LEFT, left_node, node, conditions)
        elif side == "RIGHT":
            made = self.key_join(JoinKind.LEFT, node, left_node, conditions)
        elif side == "FULL":
            made = self.key_join(JoinKind.FULL, left_node, node, conditions)
        else:
            raise UnsupportedError(f"no rule for {join.sql('spark')[:80]}")
        found.parts = [made]
        if side == "FULL" and merged:
            raise UnsupportedError("FULL JOIN … USING: write ON and COALESCE")
        self._show(scope, visible, merged, keep_right=side == "RIGHT")

    def _show(
        self,
        scope: Scope,
        visible: list[Visible],
        merged: list[tuple[str, str, str]],
        *,
        keep_right: bool,
    ) -> None:
        """Add a joined relation's columns; those of USING are visible once."""
        hidden = {right for _, _, right in merged} if not keep_right else set()
        if keep_right and merged:
            lefts = {left for _, left, _ in merged}
            scope.columns = [v for v in scope.columns if v.column not in lefts]
        for one in visible:
            if one.column not in hidden:
                scope.columns.append(one)
            else:  # still known by its own table's name
                left = next(left for _, left, right in merged if right == one.column)
                scope.columns.append(replace(one, column=left))

    def key_join(
        self, kind: JoinKind, left: Node, right: Node, conditions: list[exp.Expr]
    ) -> KeyJoin:
        """An outer, semi or anti join."""
        pairs, rest = [], []
        for condition in conditions:
            used = columns_in(condition)
            if used and used <= set(right.columns):
                if kind is not JoinKind.FULL:
                    right = filtered(right, condition)
                    continue
            elif isinstance(condition, exp.EQ):
                sides = [condition.left, condition.right]
                if columns_in(sides[0]) <= set(right.columns):
                    sides.reverse()
                if (
                    columns_in(sides[0]) <= set(left.columns)
                    and columns_in(sides[1]) <= set(right.columns)
                    and all(columns_in(side) for side in sides)
                ):
                    left, one = self._as_column(left, sides[0])
                    right, other = self._as_column(right, sides[1])
                    pairs.append((one, other))
                    continue
            rest.append(condition)
        columns = left.columns
        if kind in (JoinKind.LEFT, JoinKind.FULL):
            columns = (*columns, *right.columns)
            self.names.not_null -= set(right.columns)
            if kind is JoinKind.FULL:
                self.names.not_null -= set(left.columns)
        return KeyJoin(
            columns=columns, kind=kind, left=left, right=right, pairs=tuple(pairs), rest=tuple(rest)
        )

    def _as_column(self, node: Node, value: exp.Expr) -> tuple[Node, str]:
        if isinstance(value, exp.Column):
            return node, value.name
        return self.with_column(node, value)

    def with_column(self, node: Node, value: exp.Expr, base: str = "k") -> tuple[Node, str]:
        """A node with one more column, computed."""
        name = self.names.new(base, self.names.type_of(value))
        items = (*((c, column_of(c)) for c in node.columns), (name, value))
        return Project(columns=(*node.columns, name), input=node, items=items), name

    def _lateral_view(self, lateral: exp.Lateral, found: From, scope: Scope) -> None:
        alias = lateral.args["alias"]
        call = scope.bind(lateral.this)
        self._explode(
            call,
            bool(lateral.args.get("outer")),
            found,
            scope,
            [c.name for c in alias.columns],
            alias.name or None,
        )

    def _explode(
        self,
        call: exp.Expr,
        outer: bool,
        found: From,
        scope: Scope,
        names: list[str],
        relation: str | None,
    ) -> list[str]:
        if isinstance(call, exp.Posexplode | exp.PosexplodeOuter):
            names = names or ["pos", "col"]
        elif isinstance(call, exp.Explode | exp.ExplodeOuter):
            names = names or ["col"]
        else:
            raise UnsupportedError(f"no rule for the generator {call.sql('spark')[:60]}")
        node = found.collapse()
        made = [self.names.new(name) for name in names]
        columns = (*node.columns, *made)
        found.parts = [
            Explode(columns=columns, input=node, call=call, outer=outer, made=tuple(made))
        ]
        scope.columns += [
            Visible(relation=relation, name=name, column=column)
            for name, column in zip(names, made, strict=True)
        ]
        return made

    # --- SELECT -----------------------------------------------------------------------------

    def _select(self, select: exp.Select, env: Env, outer: Scope | None) -> Result:
        from tailrace.views.subqueries import Subqueries

        for refused in _REFUSED:
            if select.args.get(refused):
                raise UnsupportedError(f"no rule for {refused} in {select.sql('spark')[:60]}")
        found, scope = self._from(select, env, outer)
        subqueries = Subqueries(self, env)
        open_conditions: list[exp.Expr] = []
        where = select.args.get("where")
        for condition in conjuncts(where.this if where else None):
            bound = subqueries.condition(condition, found, scope)
            if bound is None:
                continue
            if columns_in(bound) <= found.columns:
                found.conditions.append(bound)
            else:
                open_conditions.append(bound)
        return self._after_where(select, found, scope, subqueries, open_conditions)

    def _after_where(
        self,
        select: exp.Select,
        found: From,
        scope: Scope,
        subqueries: object,
        open_conditions: list[exp.Expr],
    ) -> Result:
        from tailrace.views.subqueries import Subqueries

        assert isinstance(subqueries, Subqueries)
        items = self._items(select, scope, found, subqueries)
        node = found.node()
        having = select.args.get("having")
        qualify = select.args.get("qualify")
        order = select.args.get("order")
        aliases = {name.casefold(): value for name, value in items}
        bound_having = self._bind_late(having.this, scope, aliases) if having else None
        bound_qualify = self._bind_late(qualify.this, scope, aliases) if qualify else None
        distinct = select.args.get("distinct")
        limited = select.args.get("limit") is not None or select.args.get("offset") is not None
        if distinct is not None and distinct.args.get("on"):
            raise UnsupportedError("DISTINCT ON")
        late = [*(value for _, value in items)]
        late += [tree for tree in (bound_having, bound_qualify) if tree is not None]
        orders = self._orders(order, scope, items) if order and limited else []
        late += [ordered.this for ordered in orders]
        group = select.args.get("group")
        groups = group is not None or any(is_aggregate(tree) for tree in late)
        single = False
        on_empty = None
        if groups:
            if any(tree.find(exp.Query) for tree in late):
                # Where a subquery's columns are those of the groups, it comes after them.
                late = [tree for tree in late if not tree.find(exp.Query)] + [
                    _without_queries(tree) for tree in late if tree.find(exp.Query)
                ]
            made = Aggregating(self, node).run(group, scope, items, late, open_conditions)
            node, single, open_conditions = made.node, made.single, made.open
            on_empty = made.on_empty(items[0][1]) if single else None
            items = [(name, made.after(value)) for name, value in items]
            orders = [_with_this(ordered, made.after(ordered.this)) for ordered in orders]
            bound_having = None if bound_having is None else made.after(bound_having)
            bound_qualify = None if bound_qualify is None else made.after(bound_qualify)
            if bound_having is not None:
                if bound_having.find(exp.Query):
                    holder = From(parts=[node])
                    for condition in conjuncts(bound_having):
                        left = subqueries.bound(condition, holder, scope)
                        if left is not None:
                            holder.conditions.append(left)
                    node = holder.node()
                else:
                    node = filtered(node, bound_having)
        elif bound_having is not None:
            raise InvalidError("HAVING needs a GROUP BY or an aggregate function")
        node, items, orders, bound_qualify = self._windows(
            select, scope, node, items, orders, bound_qualify
        )
        if bound_qualify is not None:
            node = filtered(node, bound_qualify)
        extra = sorted(
            {c for tree in open_conditions for c in columns_in(tree)} & set(node.columns)
        )
        if distinct is not None and not extra:
            project = self.projected(node, items)
            node = Aggregate(columns=project.columns, input=project, keys=project.columns, calls=())
        else:
            # What an ORDER BY or an open condition needs is kept beside the outputs.
            hidden = [(f"o{n}", ordered.this) for n, ordered in enumerate(orders)]
            project = self.projected(node, [*items, *hidden, *((c, column_of(c)) for c in extra)])
            node = project
            places = project.columns[len(items) : len(items) + len(hidden)]
            orders = [
                _with_this(ordered, column_of(place))
                for ordered, place in zip(orders, places, strict=True)
            ]
            names = dict(zip(extra, project.columns[len(items) + len(hidden) :], strict=True))
            open_conditions = [
                renamed(tree, {old: column_of(new) for old, new in names.items()})
                for tree in open_conditions
            ]
        if distinct is not None and orders:
            orders = self._orders_of_outputs(orders, items, node.columns)
        outputs = [
            Output(name=name, column=column)
            for (name, _), column in zip(items, node.columns, strict=False)
        ]
        result = Result(
            node=node, outputs=outputs, open=open_conditions, single=single, on_empty=on_empty
        )
        return self._limited(select, result, orders) if limited else result

    def _orders_of_outputs(
        self,
        orders: list[exp.Ordered],
        items: list[tuple[str, exp.Expr]],
        columns: tuple[str, ...],
    ) -> list[exp.Ordered]:
        made = []
        for ordered in orders:
            for (_, value), column in zip(items, columns, strict=False):
                if ordered.this == value:
                    made.append(_with_this(ordered, column_of(column)))
                    break
            else:
                raise UnsupportedError("ORDER BY of SELECT DISTINCT by what is not selected")
        return made

    def _items(
        self, select: exp.Select, scope: Scope, found: From, subqueries: object
    ) -> list[tuple[str, exp.Expr]]:
        """The SELECT list: names and bound expressions."""
        from tailrace.views.subqueries import Subqueries

        assert isinstance(subqueries, Subqueries)
        items: list[tuple[str, exp.Expr]] = []
        self._expand_stars(select, scope)
        for number, tree in enumerate(select.expressions):
            value = tree.this if isinstance(tree, exp.Alias) else tree
            if isinstance(tree, exp.Aliases) or isinstance(value, exp.UDTF):
                value = tree.this if isinstance(tree, exp.Aliases) else value
                aliases = (
                    [i.name for i in tree.expressions]
                    if isinstance(tree, exp.Aliases)
                    else ([tree.alias] if isinstance(tree, exp.Alias) else [])
                )
                outer = isinstance(value, exp.ExplodeOuter | exp.PosexplodeOuter)
                made = self._explode(scope.bind(value), outer, found, scope, aliases, None)
                shown = [v.name for v in scope.columns[-len(made) :]]
                items += [(n, column_of(c)) for n, c in zip(shown, made, strict=True)]
                continue
            name = tree.alias if isinstance(tree, exp.Alias) else self._name_of(value, number)
            items.append((name, subqueries.value(value, found, scope)))
        return items

    def _name_of(self, value: exp.Expr, _number: int) -> str:
        if isinstance(value, exp.Column | exp.Dot):
            return value.name or value.expression.name
        return value.sql("spark")

    def _expand_stars(self, select: exp.Select, scope: Scope) -> None:
        """Spell out * in the query itself: columns that a table gets later are not the view's."""
        made: list[exp.Expr] = []
        for tree in select.expressions:
            star = tree.this if isinstance(tree, exp.Column) else tree
            made += self._star(tree, star, scope) if isinstance(star, exp.Star) else [tree]
        select.set("expressions", made)

    def _star(self, tree: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Expr]:
        if star.args.get("except_") or star.args.get("replace") or star.args.get("rename"):
            raise UnsupportedError("* EXCEPT")
        table = tree.table if isinstance(tree, exp.Column) else None
        found: list[exp.Expr] = []
        seen: set[str] = set()
        for visible in scope.columns:
            if table and (visible.relation or "").casefold() != table.casefold():
                continue
            if visible.column not in seen:
                seen.add(visible.column)
                relation = visible.relation and exp.to_identifier(visible.relation, quoted=True)
                name = exp.to_identifier(visible.name, quoted=True)
                found.append(exp.column(name, table=relation))
        if not found:
            raise InvalidError(f"{tree.sql('spark')}: there is no such table in the FROM")
        return found

    def _bind_late(
        self, tree: exp.Expr, scope: Scope, aliases: Mapping[str, exp.Expr]
    ) -> exp.Expr:
        """HAVING, QUALIFY, GROUP BY and ORDER BY may also name the SELECT list's aliases."""
        holder = exp.Paren(this=tree.copy())
        for column in outside_queries(holder):
            known = not column.table and scope.find(column.name, None) is not None
            if not column.table and not known and column.name.casefold() in aliases:
                column.replace(exp.paren(aliases[column.name.casefold()].copy(), copy=False))
        return _rebind(holder.this, scope)

    def _orders(
        self, order: exp.Order, scope: Scope, items: list[tuple[str, exp.Expr]]
    ) -> list[exp.Ordered]:
        made = []
        aliases = {name.casefold(): value for name, value in items}
        for ordered in order.expressions:
            tree = ordered.this
            if isinstance(tree, exp.Literal) and not tree.is_string:
                bound = items[int(tree.this) - 1][1].copy()
            elif (
                isinstance(tree, exp.Column) and not tree.table and tree.name.casefold() in aliases
            ):
                bound = aliases[tree.name.casefold()].copy()
            else:
                bound = self._bind_late(tree, scope, aliases)
            made.append(_with_this(ordered, bound))
        return made

    def _windows(
        self,
        select: exp.Select,
        scope: Scope,
        node: Node,
        items: list[tuple[str, exp.Expr]],
        orders: list[exp.Ordered],
        qualify: exp.Expr | None,
    ) -> tuple[Node, list[tuple[str, exp.Expr]], list[exp.Ordered], exp.Expr | None]:
        named = {w.this.name.casefold(): w for w in select.args.get("windows") or ()}
        trees = [*(value for _, value in items), *(o.this for o in orders)]
        trees += [qualify] if qualify is not None else []
        calls: dict[str, exp.Window] = {}
        for tree in trees:
            for window in tree.find_all(exp.Window):
                calls.setdefault(window.sql("spark"), window)
        if not calls:
            return node, items, orders, qualify
        if named:
            raise UnsupportedError("a named WINDOW: write OVER (…) at each function")
        made: list[tuple[str, exp.Expr]] = []
        parts: list[set[str]] = []
        exact = True
        for text, window in calls.items():
            bound = window.copy()
            partition = []
            for key in bound.args.get("partition_by") or ():
                node, column = self._as_column(node, key.copy())
                partition.append(column_of(column))
            bound.set("partition_by", partition)
            parts.append({column.name for column in partition})
            inside = window.this.find(exp.AggFunc)
            argument = None if inside is None else inside.this
            if isinstance(inside, exp.Sum | exp.Avg) and not self.names.is_exact(argument):
                exact = False
            made.append((text, bound))
        shared = set.intersection(*parts)
        named_items = []
        names: dict[str, str] = {}
        for text, bound in made:
            if isinstance(bound.this, _ORDERED) or (
                bound.args.get("spec") is not None and bound.args["spec"].args.get("kind") == "ROWS"
            ):
                order = bound.args.get("order") or exp.Order(expressions=[])
                known = [c for c in node.columns]
                order.set(
                    "expressions",
                    [
                        *order.expressions,
                        *(exp.Ordered(this=column_of(c), nulls_first=True) for c in known),
                    ],
                )
                bound.set("order", order)
            name = self.names.new("w", self.names.type_of(bound))
            names[text] = name
            named_items.append((name, bound))
        node = Window(
            columns=(*node.columns, *(name for name, _ in named_items)),
            input=node,
            partition=tuple(c for c in node.columns if c in shared),
            items=tuple(named_items),
            exact=exact,
        )

        def after(tree: exp.Expr) -> exp.Expr:
            holder = exp.Paren(this=tree.copy())
            for window in list(holder.find_all(exp.Window)):
                text = window.sql("spark")
                if text in names:
                    window.replace(column_of(names[text]))
            return holder.this

        return (
            node,
            [(name, after(value)) for name, value in items],
            [_with_this(o, after(o.this)) for o in orders],
            None if qualify is None else after(qualify),
        )

    # --- LIMIT ------------------------------------------------------------------------------

    def _limited(
        self, query: exp.Expr, result: Result, orders: list[exp.Ordered] | None = None
    ) -> Result:
        limit, offset = query.args.get("limit"), query.args.get("offset")
        if limit is None and offset is None:
            return result
        if orders is None:
            scope = Scope(
                columns=[
                    Visible(relation=None, name=o.name, column=o.column) for o in result.outputs
                ]
            )
            given = query.args.get("order")
            items = [(o.name, column_of(o.column)) for o in result.outputs]
            orders = self._orders(given, scope, items) if given else []
        if result.open:
            raise UnsupportedError("LIMIT in a correlated subquery")
        shown = [column_of(output.column) for output in result.outputs]
        known = {ordered.this.sql() for ordered in orders}
        ties = [exp.Ordered(this=c, nulls_first=True) for c in shown if c.sql() not in known]
        node = Limit(
            columns=result.node.columns,
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


def _without_queries(tree: exp.Expr) -> exp.Expr:
    holder = exp.Paren(this=tree.copy())
    for query in list(holder.find_all(exp.Query)):
        query.replace(exp.Null())
    return holder.this


def _with_this(ordered: exp.Ordered, this: exp.Expr) -> exp.Ordered:
    made = ordered.copy()
    made.set("this", this)
    return made


def _rebind(tree: exp.Expr, scope: Scope) -> exp.Expr:
    """Bind names; columns of the plan that are in the tree already stay."""
    columns = {visible.column for visible in scope.columns}
    around = scope
    while around.outer is not None:
        around = around.outer
        columns |= {visible.column for visible in around.columns}
    holder = exp.Paren(this=tree.copy())
    for column in outside_queries(holder):
        if column.table or column.name not in columns:
            column.replace(scope.bind(column))
    return holder.this


def _visible(result: Result, relation: str | None) -> list[Visible]:
    return [
        Visible(relation=relation, name=output.name, column=output.column)
        for output in result.outputs
    ]


def _renamed_outputs(result: Result, names: list[str]) -> Result:
    if not names:
        return result
    if len(names) != len(result.outputs):
        raise InvalidError(f"{len(names)} names are given for {len(result.outputs)} columns")
    outputs = [
        Output(name=name, column=output.column)
        for name, output in zip(names, result.outputs, strict=True)
    ]
    return replace(result, outputs=outputs)
