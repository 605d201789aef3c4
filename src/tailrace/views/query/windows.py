"""Window functions of a SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tailrace.views.query.plan import Node, Window
from tailrace.views.query.scope import UnsupportedError, column_of

if TYPE_CHECKING:
    from tailrace.views.query.from_clause import Relations

Items = list[tuple[str, exp.Expr]]
# Functions whose result depends on how rows are ordered that ORDER BY leaves equal.
_ORDERED = (
    exp.RowNumber,
    exp.Lead,
    exp.Lag,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.Ntile,
)


def add_windows(
    relations: Relations,
    select: exp.Select,
    node: Node,
    items: Items,
    orders: list[exp.Ordered],
    qualify: exp.Expr | None,
) -> tuple[Node, Items, list[exp.Ordered], exp.Expr | None]:
    """A node with the functions' values as columns, and the expressions over these columns."""
    trees = [*(value for _, value in items), *(o.this for o in orders)]
    trees += [qualify] if qualify is not None else []
    calls: dict[str, exp.Window] = {}
    for tree in trees:
        for window in tree.find_all(exp.Window):
            calls.setdefault(window.sql("spark"), window)
    if not calls:
        return node, items, orders, qualify
    if select.args.get("windows"):
        raise UnsupportedError("a named WINDOW: write OVER (…) at each function")
    bound: dict[str, exp.Window] = {}
    for text, window in calls.items():
        node, bound[text] = _partitioned(relations, node, window)
    for window in bound.values():
        relations.names.check_groupable(key.name for key in window.args["partition_by"])
    shared = set.intersection(
        *({key.name for key in window.args["partition_by"]} for window in bound.values())
    )
    computed: Items = []
    names: dict[str, str] = {}
    for text, window in bound.items():
        _break_ties(window, node)
        names[text] = relations.names.new("w", relations.names.type_of(window))
        computed.append((names[text], window))
    node = Window(
        columns=(*node.columns, *names.values()),
        input=node,
        partition=tuple(c for c in node.columns if c in shared),
        items=tuple(computed),
        exact=all(_is_exact(relations, window) for window in bound.values()),
    )

    def after(tree: exp.Expr) -> exp.Expr:
        holder = exp.Paren(this=tree.copy())
        for window in list(holder.find_all(exp.Window)):
            if window.sql("spark") in names:
                window.replace(column_of(names[window.sql("spark")]))
        result: exp.Expr = holder.this
        return result

    for ordered in orders:
        ordered.set("this", after(ordered.this))
    return (
        node,
        [(name, after(value)) for name, value in items],
        orders,
        None if qualify is None else after(qualify),
    )


def _partitioned(relations: Relations, node: Node, window: exp.Window) -> tuple[Node, exp.Window]:
    """A window whose partition is by columns of the node."""
    copy = window.copy()
    assert isinstance(copy, exp.Window)
    partition = []
    for key in copy.args.get("partition_by") or ():
        node, column = relations.as_column(node, key.copy())
        partition.append(column_of(column))
    copy.set("partition_by", partition)
    return node, copy


def _break_ties(window: exp.Window, node: Node) -> None:
    """Where equal rows could come in any order, order them by all columns."""
    spec = window.args.get("spec")
    by_rows = spec is not None and spec.args.get("kind") == "ROWS"
    if isinstance(window.this, _ORDERED) or by_rows:
        order = window.args.get("order") or exp.Order(expressions=[])
        ties = [exp.Ordered(this=column_of(c), nulls_first=True) for c in node.columns]
        order.set("expressions", [*order.expressions, *ties])
        window.set("order", order)


def _is_exact(relations: Relations, window: exp.Window) -> bool:
    inside = window.this.find(exp.Sum, exp.Avg)
    return inside is None or relations.names.is_exact(inside.this)
