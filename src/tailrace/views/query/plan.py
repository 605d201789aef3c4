"""A query as a tree of relational operators: frozen values, without any engine.

Always true: every column of a node has a name that no other operator of the plan gives to
another column, so expressions refer to columns by their name alone. Expressions are sqlglot
trees over the names of the node's inputs. Rows are bags: nothing but a `Limit` has an order.
A node's columns follow from its inputs, except where it gives names of its own to all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from sqlglot import exp

from tailrace.views.query.scope import common_type

# An output column: its name and what it is computed from.
Item = tuple[str, exp.Expr]


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """An operator. Compared by identity: the same table read twice is two nodes."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Those of all inputs, unless an operator says otherwise."""
        return tuple(column for node in self.inputs for column in node.columns)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def walk(self) -> Iterator[Node]:
        """The node and all below it, each as often as it is used."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.inputs)

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(node for node in self.walk() if isinstance(node, Scan))

    @cached_property
    def sources(self) -> frozenset[str]:
        """The tables that it reads."""
        return frozenset(scan.source for scan in self.scans)

    @cached_property
    def is_simple(self) -> bool:
        """Whether it is one table, filtered and projected: cheap to compute, and to write out."""
        node: Node = self
        while isinstance(node, Filter | Project):
            node = node.input
        return isinstance(node, Scan)


@dataclass(frozen=True, kw_only=True, eq=False)
class Unary(Node):
    """An operator over one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Binary(Node):
    """An operator over two inputs that have different parts."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(Node):
    """A source: columns of a table, under this plan's names."""

    columns: tuple[str, ...]
    source: str
    fields: tuple[str, ...]  # the table's names, in parallel to `columns`


@dataclass(frozen=True, kw_only=True, eq=False)
class OneRow(Node):
    """A single row without columns: a SELECT without FROM."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Values(Node):
    """Literal rows."""

    columns: tuple[str, ...]
    rows: exp.Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Filter(Unary):
    """The rows for which a condition is true."""

    condition: exp.Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Project(Unary):
    """A row for each row."""

    items: tuple[Item, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.items)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explode(Unary):
    """Each row as often as a generator says, with the generator's columns added."""

    call: exp.Expr
    outer: bool
    added: tuple[str, ...]  # its columns

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *self.added)


@dataclass(frozen=True, kw_only=True, eq=False)
class InnerJoin(Node):
    """All combinations of rows of several inputs for which all conditions are true."""

    parts: tuple[Node, ...]
    conditions: tuple[exp.Expr, ...]
    types: Mapping[str, exp.DataType]  # of the plan's columns, as far as they are known

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @cached_property
    def used(self) -> tuple[frozenset[str], ...]:
        """The columns of each condition."""
        return tuple(
            frozenset(column.name for column in condition.find_all(exp.Column))
            for condition in self.conditions
        )

    @cached_property
    def equal(self) -> dict[str, frozenset[str]]:
        """For each column that is compared for equality, all columns that are equal to it.

        Not if their types have no common one: see `common_type`.
        """
        groups: list[set[str]] = []
        for condition in self.conditions:
            if (
                isinstance(condition, exp.EQ)
                and isinstance(condition.left, exp.Column)
                and isinstance(condition.right, exp.Column)
                and self._is_certain(condition.left.name, condition.right.name)
            ):
                pair = {condition.left.name, condition.right.name}
                joined = [group for group in groups if group & pair]
                groups = [group for group in groups if not group & pair]
                groups.append(pair.union(*joined))
        return {column: frozenset(group) for group in groups for column in group}

    def _is_certain(self, one: str, other: str) -> bool:
        return common_type(self.types.get(one), self.types.get(other)) is not None


class JoinKind(StrEnum):
    """How a row without a match is treated."""

    LEFT = "left"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyJoin(Binary):
    """A join whose rows depend on whether there is a match: outer, semi or anti."""

    kind: JoinKind
    # Pairs of columns that must be equal and have a common type; what else must be true.
    pairs: tuple[tuple[str, str], ...]
    rest: tuple[exp.Expr, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        shows_right = self.kind in (JoinKind.LEFT, JoinKind.FULL)
        return (*self.left.columns, *(self.right.columns if shows_right else ()))


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """One aggregate function over the rows of a group."""

    name: str
    call: exp.Expr
    # Whether adding up in another order gives the same value, to the last bit.
    exact: bool
    decimal: bool = False  # whether it is known to aggregate decimals


@dataclass(frozen=True, kw_only=True, eq=False)
class Aggregate(Unary):
    """A row for each group; without keys one row, whatever the input."""

    keys: tuple[str, ...]  # columns of the input
    calls: tuple[Aggregation, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(call.name for call in self.calls))


@dataclass(frozen=True, kw_only=True, eq=False)
class Union(Node):
    """The rows of all inputs, column by column in their order."""

    columns: tuple[str, ...]
    parts: tuple[Node, ...]
    # Columns whose values may differ from those of the inputs, as their types do.
    converted: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts


class SetKind(StrEnum):
    """How rows of two inputs are counted against each other."""

    INTERSECT = "intersect"
    INTERSECT_ALL = "intersect all"
    EXCEPT = "except"
    EXCEPT_ALL = "except all"


@dataclass(frozen=True, kw_only=True, eq=False)
class SetOperation(Binary):
    """INTERSECT and EXCEPT."""

    columns: tuple[str, ...]
    kind: SetKind
    converted: frozenset[str] = frozenset()  # as of a union


@dataclass(frozen=True, kw_only=True, eq=False)
class Window(Unary):
    """Each row with values computed over the rows of its partition."""

    partition: tuple[str, ...]  # columns of the input, which every item is partitioned by
    items: tuple[Item, ...]
    exact: bool

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *(name for name, _ in self.items))


@dataclass(frozen=True, kw_only=True, eq=False)
class Limit(Unary):
    """The first rows in an order; ties are broken by all columns."""

    order: tuple[exp.Expr, ...]  # exp.Ordered over the input's columns
    count: int | None
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class OutputColumn:
    """A column of the query's result: what the user calls it, and the plan's column."""

    name: str
    column: str


@dataclass(frozen=True, kw_only=True)
class Query:
    """A translated query."""

    root: Node
    outputs: tuple[OutputColumn, ...]


def users_first(root: Node) -> list[Node]:
    """Every operator of a plan once, after all that use it."""
    left: dict[Node, int] = {}  # users that have not come yet
    waiting = [root]
    while waiting:
        for child in waiting.pop().inputs:
            if child not in left:
                waiting.append(child)
            left[child] = left.get(child, 0) + 1
    order = [root]
    for node in order:
        for child in node.inputs:
            left[child] -= 1
            if not left[child]:
                order.append(child)
    return order


def depth(root: Node) -> int:
    """How many operators lie on the longest path."""
    depths: dict[Node, int] = {}
    for node in reversed(users_first(root)):
        depths[node] = 1 + max((depths[child] for child in node.inputs), default=0)
    return depths[root]


def origin(node: Node, column: str) -> str | None:
    """The table's column that a column passes on unchanged, if that is what it does."""
    if isinstance(node, Scan):
        return column
    if isinstance(node, Project):
        value = dict(node.items).get(column)
        return origin(node.input, value.name) if isinstance(value, exp.Column) else None
    if isinstance(node, Filter | InnerJoin | Explode) or (
        isinstance(node, KeyJoin) and node.kind is not JoinKind.FULL
    ):
        inputs = (node.left,) if isinstance(node, KeyJoin) else node.inputs
        for child in inputs:
            if column in child.columns:
                return origin(child, column)
    return None


def inexact_columns(node: Node) -> frozenset[str]:
    """Columns whose value may differ in the last bit when it is computed again."""
    inexact: dict[Node, frozenset[str]] = {}
    for one in reversed(users_first(node)):
        inexact[one] = _inexact(one, frozenset().union(*(inexact[child] for child in one.inputs)))
    return inexact[node]


def _inexact(node: Node, below: frozenset[str]) -> frozenset[str]:
    if isinstance(node, Aggregate):
        calls = {call.name for call in node.calls if not call.exact or _uses(call.call, below)}
        return frozenset(calls | (below & set(node.keys)))
    if isinstance(node, Project):
        return frozenset(name for name, value in node.items if _uses(value, below))
    if isinstance(node, Window):
        if not node.exact:
            return below | {name for name, _ in node.items}
        return below | {name for name, value in node.items if _uses(value, below)}
    if isinstance(node, Union | SetOperation):
        parts = node.parts if isinstance(node, Union) else (node.left, node.right)
        return frozenset(
            name
            for place, name in enumerate(node.columns)
            if any(part.columns[place] in below for part in parts)
        )
    if isinstance(node, Explode):
        return below | (set(node.added) if _uses(node.call, below) else frozenset())
    return below & frozenset(node.columns)


def _uses(value: exp.Expr, columns: frozenset[str]) -> bool:
    return any(column.name in columns for column in value.find_all(exp.Column))
