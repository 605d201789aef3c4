"""FROM: tables, subqueries, WITH queries and joins, as nodes and the names that they add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.views.query.optimize import filtered
from tailrace.views.query.plan import (
    Explode,
    InnerJoin,
    Item,
    JoinKind,
    KeyJoin,
    Node,
    OneRow,
    OutputColumn,
    Project,
    Scan,
    Values,
)
from tailrace.views.query.scope import Names, Resolve, Scope, Source, UnsupportedError, Visible
from tailrace.views.query.trees import column_of, columns_in, conjuncts

# Clauses that no rule covers.
REFUSED = ("pivots", "sample", "match", "connect", "cluster", "distribute", "sort")


@dataclass(kw_only=True)
class Result:
    """A translated query or subquery."""

    node: Node
    outputs: list[OutputColumn]
    # Conditions on columns of the query around it, left for a join to check.
    open: list[exp.Expr] = field(default_factory=list)
    # Whether it has exactly one row, or at most one for each value that it is joined by.
    single: bool = False
    # What its first output is where there is no row: a count is 0 then.
    on_empty: exp.Expr | None = None

    @classmethod
    def named(cls, node: Node, names: Sequence[str]) -> Result:
        """A node's columns under the names that users see."""
        pairs = zip(names, node.columns, strict=True)
        return cls(node=node, outputs=[OutputColumn(name=n, column=c) for n, c in pairs])

    def renamed(self, names: Sequence[str]) -> Result:
        """The same with other names, if any are given."""
        if not names:
            return self
        if len(names) != len(self.outputs):
            raise InvalidError(f"{len(names)} names are given for {len(self.outputs)} columns")
        pairs = zip(names, self.outputs, strict=True)
        return replace(self, outputs=[replace(output, name=name) for name, output in pairs])

    def visible(self, relation: str | None) -> list[Visible]:
        """The outputs as columns that an expression may name."""
        return [Visible(relation=relation, name=o.name, column=o.column) for o in self.outputs]


@dataclass(frozen=True, kw_only=True)
class Common:
    """A WITH's query, and the WITH queries that it may refer to."""

    query: exp.Query
    columns: list[str]
    env: Mapping[str, Common]


Env = Mapping[str, Common]


@dataclass(kw_only=True)
class From:
    """What has been read of a FROM: inputs of an inner join, and its conditions."""

    types: Mapping[str, exp.DataType]  # of the plan's columns
    parts: list[Node] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Join one more input; those of an inner join become inputs themselves."""
        if isinstance(node, InnerJoin):
            self.parts += node.parts
            self.conditions += node.conditions
        else:
            self.parts.append(node)

    def node(self) -> Node:
        """Everything so far as one node, with conditions on one input pushed into it."""
        node = self.parts[0]
        if len(self.parts) > 1:
            node = InnerJoin(parts=tuple(self.parts), conditions=(), types=self.types)
        for condition in self.conditions:
            node = filtered(node, condition)
        return node

    def collapse(self) -> Node:
        node = self.node()
        self.parts, self.conditions = [node], []
        return node

    @property
    def columns(self) -> set[str]:
        return {column for part in self.parts for column in part.columns}


class Relations:
    """What a FROM names; `Translator` adds the queries around it."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self.names = Names()

    def query(self, query: exp.Expr, env: Env, outer: Scope | None) -> Result:
        """A query in a FROM or a WITH."""
        raise NotImplementedError

    def projected(self, node: Node, items: Sequence[Item]) -> Project:
        """A projection; a column that is only passed on gets a new name, too."""
        named = []
        for base, value in items:
            passed = isinstance(value, exp.Column)
            kind = self.names.types.get(value.name) if passed else self.names.type_of(value)
            keeps = passed and value.name in self.names.not_null
            named.append((self.names.new(base, kind, not_null=keeps), value))
        return Project(input=node, items=tuple(named))

    def from_clause(self, select: exp.Select, env: Env, outer: Scope | None) -> tuple[From, Scope]:
        scope = Scope(outer=outer)
        from_ = From(types=self.names.types)
        first = select.args.get("from_")
        if first is None:
            from_.add(OneRow())
            return from_, scope
        node, scope.columns = self._relation(first.this, env)
        from_.add(node)
        for join in select.args.get("joins") or ():
            self._join(join, from_, scope, env)
        for lateral in select.args.get("laterals") or ():
            alias = lateral.args["alias"]
            names = [column.name for column in alias.columns]
            is_outer = bool(lateral.args.get("outer"))
            call = scope.bind(lateral.this)
            self.explode(call, from_, scope, names, alias.name or None, outer=is_outer)
        return from_, scope

    def _relation(self, tree: exp.Expr, env: Env) -> tuple[Node, list[Visible]]:
        for refused in REFUSED:
            if tree.args.get(refused):
                raise UnsupportedError(f"no rule for {tree.sql('spark')[:80]}")
        if tree.args.get("joins"):
            raise UnsupportedError("a join in parentheses")
        if isinstance(tree, exp.Table):
            relation, result = tree.alias_or_name, self._table(tree, env)
        else:
            relation, result = tree.alias, self.query(tree, env, None)
        alias = tree.args.get("alias")
        if alias is not None:
            result = result.renamed([column.name for column in alias.columns])
        return result.node, result.visible(relation or None)

    def _table(self, table: exp.Table, env: Env) -> Result:
        common = env.get(table.name.casefold()) if not table.db else None
        if common is not None:
            return self.query(common.query, common.env, None).renamed(common.columns)
        if table.args.get("version") or table.args.get("when"):
            raise InvalidError("a view reads its sources as they are: leave VERSION AS OF out")
        return self.scan(self._resolve(table))

    def scan(self, source: Source) -> Result:
        """A read of a table, or of a view's stored table as the view's readers see it."""
        if source.reader is not None:
            stored = replace(source, reader=None)
            inner = type(self)(lambda _table: stored)  # the only table that it reads
            inner.names = self.names
            return inner.query(source.reader, {}, None)
        columns = tuple(
            self.names.new(column.name, column.type, not_null=not column.nullable)
            for column in source.columns
        )
        fields = tuple(column.name for column in source.columns)
        return Result.named(Scan(columns=columns, source=source.name, fields=fields), fields)

    def _join(self, join: exp.Join, from_: From, scope: Scope, env: Env) -> None:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method or isinstance(join.this, exp.Lateral) or kind in ("ASOF", "ARRAY"):
            raise UnsupportedError(f"no rule for {join.sql('spark')[:80]}")
        node, visible = self._relation(join.this, env)
        together = Scope(columns=[*scope.columns, *visible], outer=scope.outer)
        conditions = [together.bind(c) for c in conjuncts(join.args.get("on")) if c.sql() != "TRUE"]
        merged = []  # pairs of columns that USING joins by
        for name in [column.name for column in join.args.get("using") or ()]:
            one, other = (
                Scope(columns=columns).find(name, None) for columns in (scope.columns, visible)
            )
            if one is None or other is None:
                raise InvalidError(f"USING ({name}): both sides need that column")
            conditions.append(exp.EQ(this=column_of(one), expression=column_of(other)))
            merged.append((one, other))
        if any(c.find(exp.Query) for c in conditions):
            raise UnsupportedError("a subquery in an ON condition")
        if kind in ("SEMI", "ANTI"):
            joined = self.key_join(JoinKind(kind.lower()), from_.collapse(), node, conditions)
            from_.parts = [joined]
            return
        if side in ("", "INNER") and kind in ("", "INNER", "CROSS"):
            from_.add(node)
            from_.conditions += conditions
        elif side in ("LEFT", "RIGHT", "FULL"):
            if side == "FULL" and merged:
                raise UnsupportedError("FULL JOIN … USING: write ON and COALESCE")
            left, right = from_.collapse(), node
            if side == "RIGHT":
                left, right = right, left
            which = JoinKind.FULL if side == "FULL" else JoinKind.LEFT
            from_.parts = [self.key_join(which, left, right, conditions)]
        else:
            raise UnsupportedError(f"no rule for {join.sql('spark')[:80]}")
        self._show(scope, visible, merged, keep_right=side == "RIGHT")

    def _show(
        self,
        scope: Scope,
        visible: list[Visible],
        merged: list[tuple[str, str]],
        *,
        keep_right: bool,
    ) -> None:
        """Add a joined relation's columns. USING keeps one side's, which a star shows first."""
        first = [pair[keep_right] for pair in merged]
        second = {pair[not keep_right] for pair in merged}
        every = [
            replace(one, qualified=True) if one.column in second else one
            for one in (*scope.columns, *visible)
        ]
        leading = [one for column in first for one in every if one.column == column]
        scope.columns = [*leading, *(one for one in every if one.column not in first)]

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
                    and self.names.common_type(*sides) is not None
                ):
                    left, one = self.as_column(left, sides[0])
                    right, other = self.as_column(right, sides[1])
                    pairs.append((one, other))
                    continue
            rest.append(condition)
        if kind in (JoinKind.LEFT, JoinKind.FULL):
            self.names.not_null -= set(right.columns)
            if kind is JoinKind.FULL:
                self.names.not_null -= set(left.columns)
        return KeyJoin(kind=kind, left=left, right=right, pairs=tuple(pairs), rest=tuple(rest))

    def as_column(self, node: Node, value: exp.Expr) -> tuple[Node, str]:
        if isinstance(value, exp.Column):
            return node, value.name
        return self.with_column(node, value)

    def with_column(
        self, node: Node, value: exp.Expr, base: str = "k", kind: exp.DataType | None = None
    ) -> tuple[Node, str]:
        """A node with one more column, computed."""
        name = self.names.new(base, kind or self.names.type_of(value))
        items = (*((c, column_of(c)) for c in node.columns), (name, value))
        return Project(input=node, items=items), name

    def explode(
        self,
        call: exp.Expr,
        from_: From,
        scope: Scope,
        names: list[str],
        relation: str | None,
        *,
        outer: bool,
    ) -> list[Visible]:
        """Repeat each row as often as a generator says; returns the generator's columns."""
        if isinstance(call, exp.Posexplode | exp.PosexplodeOuter):
            names = names or ["pos", "col"]
        elif isinstance(call, exp.Explode | exp.ExplodeOuter):
            names = names or ["col"]
        else:
            raise UnsupportedError(f"no rule for the generator {call.sql('spark')[:60]}")
        node = from_.collapse()
        generated = [self.names.new(name) for name in names]
        from_.parts = [Explode(input=node, call=call, outer=outer, added=tuple(generated))]
        visible = [
            Visible(relation=relation, name=name, column=column)
            for name, column in zip(names, generated, strict=True)
        ]
        scope.columns += visible
        return visible

    def with_queries(self, query: exp.Expr, env: Env) -> Env:
        clause = query.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise UnsupportedError("WITH RECURSIVE")
        known = dict(env)
        for cte in clause.expressions:
            columns = [column.name for column in cte.args["alias"].columns]
            name = cte.alias.casefold()
            known[name] = Common(query=cte.this, columns=columns, env=dict(known))
        return known

    def values_of(self, values: exp.Values) -> Result:
        """Literal rows."""
        names = [f"col{n + 1}" for n in range(len(values.expressions[0].expressions))]
        columns = tuple(self.names.new(name) for name in names)
        return Result.named(Values(columns=columns, rows=values), names)
