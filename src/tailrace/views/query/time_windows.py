"""Windows of time: `window(t, '10 minutes')`, and `window.start` beside it.

A tumbling or sliding window is a function of a row, or a generator: it becomes a column below
everything else in its SELECT. A session depends on other rows, so no rule covers it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.errors import InvalidError
from tailrace.views.query.plan import Project
from tailrace.views.query.scope import Scope, UnsupportedError, Visible, column_of

if TYPE_CHECKING:
    from tailrace.views.query.from_clause import From, Relations

# sqlglot takes `window` for the clause WINDOW, even where a parenthesis follows.
READABLE = "tailrace_window"
_TYPE = "struct<start: timestamp, end: timestamp>"


def with_readable_windows(text: str) -> str:
    """A query that calls the function by a name that sqlglot reads everywhere."""
    try:
        tokens = spark_sql.tokenize(text)
    except sqlglot.errors.SqlglotError:
        return text  # the parser says what is wrong
    places = [
        (token.start, token.end + 1)
        for token, following in pairwise(tokens)
        if token.text.lower() == "window" and following.text == "("
    ]
    for start, end in reversed(places):
        text = text[:start] + READABLE + text[end:]
    return text


def restore_windows(tree: exp.Expr) -> None:
    """Give the function its own name back."""
    for call in tree.find_all(exp.Anonymous):
        if call.name == READABLE:
            call.set("this", "window")


def add_time_window(relations: Relations, select: exp.Select, from_: From, scope: Scope) -> None:
    """Add the window of a SELECT as a column to what it reads."""
    calls = [c for c in select.find_all(exp.Anonymous) if c.parent_select is select]
    for call in calls:
        if call.name.lower() in ("session_window", "window_time"):
            raise UnsupportedError(
                f"{call.sql('spark')[:60]}: a session depends on rows beside it"
                if call.name.lower() == "session_window"
                else f"no rule for {call.sql('spark')[:60]}"
            )
    windows = {c.sql("spark"): c for c in calls if c.name.lower() == "window"}
    if not windows:
        return
    if len(windows) > 1:
        raise InvalidError("a query has at most one window of time")
    (call,) = windows.values()
    column = relations.names.new("window", exp.DataType.build(_TYPE, dialect="spark"))
    below = from_.collapse()
    items = (*((c, column_of(c)) for c in below.columns), (column, scope.bind(call)))
    from_.parts = [Project(columns=(*below.columns, column), input=below, items=items)]
    scope.calls[call.sql("spark")] = column
    if scope.find("window", None) is None:
        scope.columns.append(Visible(relation=None, name="window", column=column, implicit=True))
