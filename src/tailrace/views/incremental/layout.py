"""How a view is stored: the columns of its table, and the way in which its rows are maintained.

A view's table holds the columns that users see and, hidden, what the next refresh needs. Users
see it through a reader's query that leaves those out:

- `MERGE`: the query ends in sums, counts, averages, minima and maxima by group. Every group is a
  row, with its counts and sums beside what the query derives from them; `_tailrace_visible` says
  whether it passes HAVING.
- `KEYS`: rows are replaced by the values of some columns: the groups of another aggregate, or all
  columns but those that may differ in the last bit when recomputed.
- `BAG`: rows come and go by their values.

A LIMIT at the end is left to the reader, so the rows behind it are there when they move up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import exp

from tailrace.store.names import OWN_PREFIX
from tailrace.views.query.optimize import pruned
from tailrace.views.query.plan import (
    Aggregate,
    Aggregation,
    Filter,
    Limit,
    Node,
    Project,
    Query,
    Window,
    inexact_columns,
)
from tailrace.views.query.scope import UnsupportedError
from tailrace.views.query.trees import all_of, column_of, conjuncts, renamed

VISIBLE = f"{OWN_PREFIX}visible"
ROWS = f"{OWN_PREFIX}rows"


class Way(StrEnum):
    """How the rows of a stored view are maintained."""

    MERGE = "merge"
    KEYS = "keys"
    BAG = "rows"


@dataclass(frozen=True, kw_only=True)
class StoredColumn:
    """A column of the stored table."""

    name: str  # in the table
    column: str  # in the plan and in programs
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Call:
    """An aggregate function that is maintained by states that are stored."""

    source: Aggregation
    total: str | None = None  # a sum, 0 without values
    count: str | None = None  # of values that are not NULL
    spread: str | None = None  # at least the sum of all absolute values
    extreme: str | None = None  # the least or the greatest

    @property
    def argument(self) -> exp.Expr:
        tree: exp.Expr = self.source.call.this
        return tree

    @property
    def is_min(self) -> bool:
        return isinstance(self.source.call, exp.Min)

    @property
    def is_average(self) -> bool:
        return isinstance(self.source.call, exp.Avg)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The stored table of a view."""

    way: Way
    root: Node  # the query without what is left to the reader
    columns: tuple[StoredColumn, ...]
    limit: Limit | None = None
    # MERGE: the groups, the states of each function, and what the query derives from them.
    groups: Aggregate | None = None
    calls: tuple[Call, ...] = ()
    values: tuple[tuple[str, exp.Expr], ...] = ()
    visible: exp.Expr | None = None
    # KEYS: the columns by which rows are replaced.
    keys: tuple[str, ...] = ()
    # Why nothing better than this way is possible.
    reason: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns as programs call them."""
        return tuple(column.column for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether the stored table is the query's result, down to the last row and column."""
        return (
            self.way is not Way.MERGE
            and self.limit is None
            and not any(column.hidden for column in self.columns)
            and not any(isinstance(node, Limit | Window) for node in self.root.walk())
        )


def layout_of(query: Query) -> Layout:
    """The best way to store a query's result."""
    root, limit = query.root, None
    if isinstance(root, Limit):
        limit, root = root, root.input
    shown = [StoredColumn(name=o.name, column=o.column) for o in query.outputs]
    known = {column.column for column in shown}
    if limit is not None:
        wanted = [c.name for tree in limit.order for c in tree.find_all(exp.Column)]
        shown += [
            StoredColumn(name=f"{OWN_PREFIX}o{n}", column=name, hidden=True)
            for n, name in enumerate(dict.fromkeys(wanted))
            if name not in known
        ]
    root = pruned(root, {column.column for column in shown})
    groups, values, conditions = _over_groups(root)
    if groups is not None:
        inexact = inexact_columns(groups.input)
        if inexact & set(groups.keys):
            raise UnsupportedError("groups by sums of floating-point numbers")
        if all(map(_can_be_merged, groups.calls)):
            return _merged(root, limit, shown, groups, values, conditions)
        reason = ", ".join(_why_not(call) for call in groups.calls if not _can_be_merged(call))
        if groups.keys:
            return _keyed(root, limit, shown, list(groups.keys), reason)
        raise UnsupportedError(
            f"{reason}, and no group's key tells which rows are affected by a change"
        )
    inexact = inexact_columns(root)
    if not inexact:
        return Layout(way=Way.BAG, root=root, columns=tuple(shown), limit=limit)
    keys = [column.column for column in shown if column.column not in inexact]
    reason = "sums of floating-point numbers may differ in the last bit"
    if not keys:
        raise UnsupportedError(f"{reason}, and no other column tells the rows apart")
    return Layout(
        way=Way.KEYS, root=root, columns=tuple(shown), limit=limit, keys=tuple(keys), reason=reason
    )


def _over_groups(
    root: Node,
) -> tuple[Aggregate | None, dict[str, exp.Expr], list[exp.Expr]]:
    """The aggregate that a query ends in, the query's columns over it, and conditions on it."""
    values: dict[str, exp.Expr] = {name: column_of(name) for name in root.columns}
    conditions: list[exp.Expr] = []
    node = root
    while isinstance(node, Project | Filter):
        if isinstance(node, Project):
            below = dict(node.items)
            values = {name: renamed(value, below) for name, value in values.items()}
            conditions = [renamed(condition, below) for condition in conditions]
        else:
            conditions += conjuncts(node.condition)
        node = node.input
    return (node if isinstance(node, Aggregate) else None), values, conditions


def _can_be_merged(call: Aggregation) -> bool:
    tree = call.call
    if tree.find(exp.Distinct) is not None or tree.expressions:
        return False
    if isinstance(tree, exp.Min | exp.Max | exp.Count):
        return True
    return isinstance(tree, exp.Sum | exp.Avg) and call.exact


def _why_not(call: Aggregation) -> str:
    if isinstance(call.call, exp.Sum | exp.Avg) and not call.call.find(exp.Distinct):
        return f"{call.call.key} over floating-point numbers cannot be added up exactly"
    return f"{call.call.sql('spark')[:40]} cannot be added up"


def _merged(
    root: Node,
    limit: Limit | None,
    shown: list[StoredColumn],
    groups: Aggregate,
    values: Mapping[str, exp.Expr],
    conditions: list[exp.Expr],
) -> Layout:
    calls = []
    hidden = []
    stored_keys = {
        value.name
        for column in shown
        if isinstance(value := values[column.column], exp.Column) and value.name in groups.keys
    }
    for number, key in enumerate(groups.keys):
        if key not in stored_keys:
            hidden.append((f"{OWN_PREFIX}k{number}", key))
    hidden.append((ROWS, ROWS))
    for number, source in enumerate(groups.calls):
        tree = source.call
        total = count = extreme = spread = None
        if isinstance(tree, exp.Min | exp.Max):
            extreme = f"{OWN_PREFIX}m{number}"
        elif not (isinstance(tree, exp.Count) and isinstance(tree.this, exp.Star)):
            count = f"{OWN_PREFIX}n{number}"
            if not isinstance(tree, exp.Count):
                total = f"{OWN_PREFIX}s{number}"
            if isinstance(tree, exp.Avg) and not source.decimal:
                spread = f"{OWN_PREFIX}a{number}"
        states = {"total": total, "count": count, "extreme": extreme, "spread": spread}
        hidden += [(name, name) for name in states.values() if name is not None]
        calls.append(Call(source=source, **states))
    if conditions:
        hidden.append((VISIBLE, VISIBLE))
    # A key that is shown unchanged is not stored twice: the shown column stands for it.
    first: dict[str, str] = {}
    for column in shown:
        value = values[column.column]
        if isinstance(value, exp.Column) and value.name in groups.keys:
            first.setdefault(value.name, column.column)
    stands_for = {column: key for key, column in first.items()}
    shown = [
        replace(column, column=stands_for.get(column.column, column.column)) for column in shown
    ]
    columns = [*shown, *(StoredColumn(name=n, column=c, hidden=True) for n, c in hidden)]
    computed = {column.column for column in shown} - set(groups.keys)
    renamed_limit = limit
    if limit is not None:
        own = {
            name: column_of(value.name)
            for name, value in values.items()
            if isinstance(value, exp.Column) and value.name in groups.keys and name not in computed
        }
        renamed_limit = replace(limit, order=tuple(renamed(tree, own) for tree in limit.order))
    return Layout(
        way=Way.MERGE,
        root=root,
        columns=tuple(columns),
        limit=renamed_limit,
        groups=groups,
        calls=tuple(calls),
        values=tuple((name, values[name]) for name in values if name in computed),
        visible=all_of(conditions) if conditions else None,
    )


def _keyed(
    root: Node,
    limit: Limit | None,
    shown: list[StoredColumn],
    keys: list[str],
    reason: str,
) -> Layout:
    """Rows are replaced by group, so keys that the query does not show are stored as well."""
    node = _passing(root, keys)
    names = {key: column for column, key in _passed(node, keys).items()}
    known = {column.column for column in shown}
    columns = [
        *shown,
        *(
            StoredColumn(name=f"{OWN_PREFIX}k{n}", column=names[key], hidden=True)
            for n, key in enumerate(keys)
            if names[key] not in known
        ),
    ]
    return Layout(
        way=Way.KEYS,
        root=node,
        columns=tuple(columns),
        limit=limit,
        keys=tuple(names[key] for key in keys),
        reason=reason,
    )


def _passing(node: Node, keys: list[str]) -> Node:
    """The same node, which also passes on the keys of the aggregate below it."""
    if isinstance(node, Filter):
        return replace(node, input=_passing(node.input, keys))
    if isinstance(node, Project):
        below = _passing(node.input, keys)
        passed = _passed(below, keys)
        items = list(node.items)
        for column in passed:
            own = {value.name for _, value in items if isinstance(value, exp.Column)}
            if column not in own:
                items.append((f"{column}_p", column_of(column)))
        return replace(node, input=below, items=tuple(items))
    return node


def _passed(node: Node, keys: list[str]) -> dict[str, str]:
    """Columns of a node that are keys of the aggregate below it, with these keys."""
    if isinstance(node, Filter):
        return _passed(node.input, keys)
    if isinstance(node, Project):
        below = _passed(node.input, keys)
        keys_by_column: dict[str, str] = {}
        for name, value in node.items:
            if isinstance(value, exp.Column) and value.name in below:
                key = below[value.name]
                if key not in keys_by_column.values():
                    keys_by_column[name] = key
        return keys_by_column
    return {key: key for key in keys}
