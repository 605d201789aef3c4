"""Functions of time in a view's query: `current_date`, `now` and the like.

They are fixed for a refresh; when they have moved on, the view has to be refreshed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlglot import exp

from tailrace.spark_sql.determinism import DAY, INSTANT, called, is_moment

# For any moment, where only the shape of a query matters.
SOME_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)


def moments_in(tree: exp.Expr) -> tuple[str, ...]:
    """The names of the functions of time that a query calls."""
    return tuple(sorted({name for _, name in _calls(tree)}))


def fix_moments(tree: exp.Expr, moment: datetime) -> None:
    """Replace the functions of time by a moment's values."""
    for call, name in list(_calls(tree)):
        if name in DAY:
            call.replace(exp.cast(exp.Literal.string(moment.date().isoformat()), "date"))
            continue
        instant = exp.cast(exp.Literal.string(moment.isoformat(" ")), "timestamp")
        if name == "localtimestamp":  # in the session's time zone
            instant = exp.cast(instant, "timestamp_ntz", dialect="spark")
        call.replace(instant)


def _calls(tree: exp.Expr) -> Iterator[tuple[exp.Func, str]]:
    """The calls, each with Spark's name of it."""
    for call in tree.find_all(exp.Func):
        name = called(call)
        if name in DAY:
            yield call, name
        elif name in INSTANT and is_moment(call):
            # sqlglot reads unix_timestamp() as this.
            yield call, "unix_timestamp" if isinstance(call.parent, exp.StrToUnix) else name


def moment_text(moments: tuple[str, ...], moment: datetime) -> str:
    """A moment as a view's functions see it: the same for as long as their values are."""
    if not moments:
        return ""
    return str(moment.date()) if set(moments) <= DAY else moment.isoformat()
