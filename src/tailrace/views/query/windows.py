"""Window functions of a SELECT, and windows of time: `window(t, '10 minutes')`.

A tumbling or sliding window of time is a function of a row, or a generator: it becomes a column
below everything else in its SELECT. A session depends on other rows, so no rule covers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tailrace.errors import InvalidError
from tailrace.views.query.plan import Node, Window
from tailrace.views.query.scope import Scope, UnsupportedError, Visible
from tailrace.views.query.trees import column_of

if TYPE_CHECKING:
    from tailrace.views.query.from_clause import From, Relations
    from tailrace.views.query.translate import Late

_TIME_WINDOW = exp.DataType.build("struct<start: timestamp, end: timestamp>", dialect="spark")
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


def add_windows(relations: Relations, select: exp.Select, node: Node, late: Late) -> Node:
    """A node with the functions' values as columns; what comes `late` then reads these columns."""
    calls: dict[str, exp.Window] = {}
    for tree in late.trees():
        for window in tree.find_all(exp.Window):
            calls.setdefault(window.sql("spark"), window)
    if not calls:
        return node
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
    computed: list[tuple[str, exp.Expr]] = []
    names: dict[str, str] = {}
    for text, window in bound.items():
        _break_ties(window, node)
        names[text] = relations.names.new("w", relations.names.type_of(window))
        computed.append((names[text], window))

    def after(part: exp.Expr) -> exp.Expr:
        name = names.get(part.sql("spark")) if isinstance(part, exp.Window) else None
        return part if name is None else column_of(name)

    late.rewrite(lambda tree: tree.transform(after))
    return Window(
        input=node,
        partition=tuple(c for c in node.columns if c in shared),
        items=tuple(computed),
        exact=all(_is_exact(relations, window) for window in bound.values()),
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


def add_time_window(relations: Relations, select: exp.Select, from_: From, scope: Scope) -> None:
    """Add the window of a SELECT as a column to what it reads."""
    calls = [c for c in select.find_all(exp.Anonymous) if c.parent_select is select]
    for call in calls:
        if call.name.lower() == "session_window":
            raise UnsupportedError(f"{call.sql('spark')[:60]}: a session depends on rows beside it")
        if call.name.lower() == "window_time":
            raise UnsupportedError(f"no rule for {call.sql('spark')[:60]}")
    windows = {c.sql("spark"): c for c in calls if c.name.lower() == "window"}
    if not windows:
        return
    if len(windows) > 1:
        raise InvalidError("a query has at most one window of time")
    (call,) = windows.values()
    node, column = relations.with_column(
        from_.collapse(), scope.bind(call), "window", _TIME_WINDOW.copy()
    )
    from_.parts = [node]
    scope.calls[call.sql("spark")] = column
    if scope.find("window", None) is None:
        scope.columns.append(Visible(relation=None, name="window", column=column, implicit=True))
