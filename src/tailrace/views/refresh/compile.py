"""Translates programs to DuckDB, with Spark's meaning, before anything is read.

So it is known at once whether a refresh needs Spark, and why: the planner asks, and `explain`
tells. Translated are the shapes that programs are built of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb import type_rules
from tailrace.spark_sql.duckdb.engine import ColumnTypes
from tailrace.spark_sql.duckdb.expressions import translate
from tailrace.spark_sql.duckdb.translated import (
    Translated,
    cast,
    condition,
    only,
    plain_zero,
    typed,
)
from tailrace.spark_sql.duckdb.type_rules import BIGINT, INT, DataType, DiffersError
from tailrace.store.schema import Column
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import WEIGHT, Fetch, Keys, Program, leaves_of
from tailrace.views.query.parse import TOO_DEEP
from tailrace.views.query.trees import (
    column_of,
    names_in,
    select,
    sub,
    table,
    union_all,
    union_parts,
)

# With fewer rows left out before it, one of these may give fewer or other rows.
_NOT_MONOTONE = (
    exp.Join,
    exp.Group,
    exp.AggFunc,
    exp.Anonymous,
    exp.Window,
    exp.Limit,
    exp.Except,
    exp.Intersect,
)
# The name of a program's own query, beside those of its steps.
RESULT = ""


def all_keys(step: Fetch) -> str:
    """The name of the query for all keys that a step can be asked for, see `Keys.among`."""
    return f"{step.name}_all"


@dataclass(frozen=True, kw_only=True)
class LocalQuery:
    """A query of DuckDB."""

    text: str
    types: ColumnTypes  # of its columns, in Spark
    reads: tuple[str, ...]  # names of relations


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The queries of a program that can be answered in this process."""

    queries: Mapping[str, LocalQuery] = field(default_factory=dict)  # by the step's name
    reason: str = ""  # why Spark is needed; empty if it is not


def compiled(program: Program, leaves: Mapping[str, ColumnTypes]) -> Compiled:
    """Translate each step of a program to DuckDB; `leaves` are the relations that it reads."""
    compiler = _Compiler(leaves)
    for step in program.steps:
        if isinstance(step, Fetch):
            source = compiler.known[program.leaf(step.source, step.end).name]
            compiler.known[step.name] = {name: source[name] for name in sorted(step.fields)}
            if step.among is not None:
                compiler.add(all_keys(step), step.among, needed=False)
        elif not compiler.add(step.name, step.query) and isinstance(step, Keys):
            more = without_conditions(step.query)
            if more is not None:
                compiler.add(step.name, more)
    compiler.add(RESULT, program.query)
    return Compiled(queries=compiler.queries, reason=compiler.reason)


class _Compiler:
    """Translates queries one after the other, each over those before it."""

    def __init__(self, known: Mapping[str, ColumnTypes]) -> None:
        self.known = dict(known)
        self.queries: dict[str, LocalQuery] = {}
        self.reason = ""  # of the first that could not be translated

    def add(self, name: str, query: exp.Query, *, needed: bool = True) -> bool:
        try:
            local = local_query(query, self.known)
            reads = tuple(sorted(names_in(local.query)))  # before `local.sql`, which consumes it
            self.queries[name] = LocalQuery(text=local.sql, types=local.kinds, reads=reads)
        except (DiffersError, RecursionError) as error:
            if needed:
                reason = str(error) if isinstance(error, DiffersError) else TOO_DEEP
                self.reason = self.reason or reason
            return False
        self.known[name] = local.kinds
        return True


def types_of_leaves(
    sources: Mapping[str, Iterable[Column]], stored: Mapping[str, pa.DataType]
) -> dict[str, ColumnTypes]:
    """The types of what programs read: sources at both ends, their changes, the stored rows."""
    leaf_types: dict[str, ColumnTypes] = {
        stored_delta.STORED: {**stored, stored_delta.FILE: BIGINT, stored_delta.POS: BIGINT}
    }
    for leaf in leaves_of(sources).values():
        plain = {column.name: column.type for column in sources[leaf.source]}
        leaf_types[leaf.name] = plain if leaf.end is not None else {**plain, WEIGHT: INT}
    return leaf_types


def without_conditions(query: exp.Query) -> exp.Query | None:
    """A query for the same keys and more, if dropping its conditions can only add some."""
    if not query.find(exp.Where) or query.find(*_NOT_MONOTONE):
        return None
    wider = query.copy()
    for where in list(wider.find_all(exp.Where)):
        where.pop()
    return wider


_PLACE = [stored_delta.FILE, stored_delta.POS]
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "distinct"}
_JOINS = {("", ""), ("", "CROSS"), ("", "INNER"), ("LEFT", ""), ("FULL", ""), ("RIGHT", "")} | {
    ("LEFT", "SEMI"),
    ("LEFT", "ANTI"),
}


@dataclass(frozen=True)
class Local:
    """A query of DuckDB, and the types of its columns in Spark."""

    query: exp.Query
    kinds: ColumnTypes

    @property
    def sql(self) -> str:
        """Its text."""
        return str(self.query.sql("duckdb", copy=False))


def local_query(tree: exp.Expr, tables: Mapping[str, ColumnTypes]) -> Local:
    """A query over tables, whose columns all have types that DuckDB knows."""
    local = _query(tree, tables)
    for kind in local.kinds.values():
        type_rules.check(kind)
    return local


def _query(tree: exp.Expr, tables: Mapping[str, ColumnTypes]) -> Local:
    if isinstance(tree, exp.Subquery):
        only(tree, {"this", "alias"})
        return _query(tree.this, tables)
    if isinstance(tree, exp.Union):
        return _union(tree, tables)
    if isinstance(tree, exp.Select):
        return _Select(tree, tables).local()
    raise DiffersError(type(tree).__name__)


def _union(tree: exp.Union, tables: Mapping[str, ColumnTypes]) -> Local:
    """All rows of queries, with each column in a type that holds all values."""
    only(tree, {"this", "expression"})
    sides = [_query(part, tables) for part in union_parts(tree)]
    names = list(sides[0].kinds)
    wanted = [
        type_rules.common(many) for many in zip(*(s.kinds.values() for s in sides), strict=True)
    ]
    union = union_all([_in_kinds(side, names, wanted) for side in sides])
    return Local(union, dict(zip(names, wanted, strict=True)))


def _in_kinds(side: Local, names: list[str], wanted: list[DataType]) -> exp.Query:
    if list(side.kinds.values()) == wanted:
        return side.query
    items = [
        _named(cast(Translated(_column(own), have), kind), name)
        for (own, have), name, kind in zip(side.kinds.items(), names, wanted, strict=True)
    ]
    return select(items, sub(side.query))


def _named(tree: exp.Expr, name: str) -> exp.Expr:
    if isinstance(tree, exp.Column) and tree.name == name:
        return tree
    return exp.Alias(this=tree, alias=exp.Identifier(this=name, quoted=True))


def _column(name: str, relation: str | None = None) -> exp.Column:
    return column_of(name, relation, quoted=True)


@dataclass
class _Select:
    tree: exp.Select
    tables: Mapping[str, ColumnTypes]
    scope: dict[str, ColumnTypes] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)

    def local(self) -> Local:
        only(self.tree, _CLAUSES)
        if self.tree.args.get("from_") is None:
            raise DiffersError("a SELECT without FROM")
        source = self._source(self.tree.args["from_"].this)
        joins = [self._join(join) for join in self.tree.args.get("joins") or ()]
        where = self.tree.args.get("where")
        restriction = None if where is None else self._condition(where.this)
        groups = self._groups()
        items = self._items()
        if self.tree.args.get("distinct"):
            # As for groups.
            items = [(name, Translated(plain_zero(value), value.type)) for name, value in items]
        query = select([_named(value.tree, name) for name, value in items], source)
        query.set("joins", joins)
        if restriction is not None:
            query = query.where(restriction, copy=False)
        if groups:
            query = query.group_by(*groups, copy=False)
        having = self.tree.args.get("having")
        if having is not None:
            query = query.having(self._condition(having.this), copy=False)
        kinds = {name: value.type for name, value in items}
        if len(kinds) != len(items):
            raise DiffersError("two columns of one name")
        if self.tree.args.get("distinct"):
            only(self.tree.args["distinct"], set())
            query = query.distinct(copy=False)
        return Local(query, kinds)

    def _source(self, tree: exp.Expr) -> exp.Expr:
        if isinstance(tree, exp.Table):
            only(tree, {"this", "alias"})
            alias, kinds = tree.alias or tree.name, self.tables.get(tree.name)
            if kinds is None:
                raise DiffersError(f"{tree.name}, which is not in memory")
            relation: exp.Expr = table(tree.name, alias)
        elif isinstance(tree, exp.Subquery):
            below = _query(tree, self.tables)
            alias, kinds = tree.alias, below.kinds
            relation = sub(below.query, alias)
        else:
            raise DiffersError(f"{type(tree).__name__} in FROM")
        if alias in self.scope:
            raise DiffersError(f"two relations called {alias}")
        self.scope[alias] = kinds
        return relation

    def _join(self, join: exp.Join) -> exp.Join:
        only(join, {"this", "on", "side", "kind"})
        side, kind = join.side, join.kind
        if (side, kind) not in _JOINS:
            raise DiffersError(f"{side} {kind} JOIN")
        translated = exp.Join(this=self._source(join.this), side=side or None, kind=kind or None)
        on = join.args.get("on")
        if on is not None:
            translated.set("on", self._condition(on))
        elif kind != "CROSS":
            translated.set("kind", "CROSS")
        return translated

    def _groups(self) -> list[exp.Expr]:
        group = self.tree.args.get("group")
        if group is None:
            return []
        only(group, {"expressions"})
        keys = []
        for key in group.expressions:
            if not isinstance(key, exp.Column):
                raise DiffersError("a group by an expression")
            self.grouped.add(key.name)
            keys.append(self._typed(key).tree)
        return keys

    def _items(self) -> list[tuple[str, Translated]]:
        items: list[tuple[str, Translated]] = []
        for item in self.tree.expressions:
            if isinstance(item, exp.Star):
                only(item, set())
                for alias, own in self.scope.items():
                    items += [
                        (name, Translated(_column(name, alias), kind)) for name, kind in own.items()
                    ]
                continue
            value = item.this if isinstance(item, exp.Alias) else item
            if isinstance(value, exp.Window):
                items.append((item.alias_or_name, self._window(value)))
            else:
                items.append((item.alias_or_name, translate(value, self._typed)))
        return items

    def _window(self, window: exp.Window) -> Translated:
        """The number of a stored row among equal ones; other windows may sort otherwise."""
        only(window, {"this", "partition_by", "order", "over"})
        order = window.args["order"].expressions if window.args.get("order") else []
        by = [one.this.name for one in order]
        plain = all(name.startswith(stored_delta.UNLIKE) for name in by[:-2])
        if not isinstance(window.this, exp.RowNumber) or by[-2:] != _PLACE or not plain:
            raise DiffersError(f"{type(window.this).__name__} OVER …")
        order = [exp.Ordered(this=translate(one.this, self._typed).tree) for one in order]
        keys = [translate(key, self._typed) for key in window.args["partition_by"]]
        numbered = exp.Window(
            this=exp.RowNumber(),
            # Not the columns themselves: DuckDB would give back what it sorted by.
            partition_by=[plain_zero(key) for key in keys],
            order=exp.Order(expressions=order),
        )
        return typed(numbered, INT)

    def _condition(self, tree: exp.Expr) -> exp.Expr:
        return condition(translate(tree, self._typed))

    def _typed(self, tree: exp.Column) -> Translated:
        name, relation = tree.name, tree.table
        owners = [
            (alias, own[name])
            for alias, own in self.scope.items()
            if name in own and relation in ("", alias)
        ]
        if len(owners) != 1:
            raise DiffersError(f"{len(owners)} columns called {tree.sql('spark')}")
        alias, kind = owners[0]
        type_rules.check(kind)
        value = Translated(_column(name, alias), kind)
        # Of zeros with different signs in a group, Spark shows the positive one.
        return Translated(plain_zero(value), kind) if name in self.grouped else value
