"""Views over a lake that changes, each compared with its query asked of DuckDB.

A test of a benchmark's queries keeps one `Site`: the lake, and the views that were made so far.
Round 0 builds them; each later round changes the lake once before the views are refreshed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support import duck, queries

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    import tailrace
    from tests.support.lakes import LakeArgs

# `make stress` makes three rounds of changes, and recomputes every view after each. In one round,
# where DuckDB is a witness of all of them anyway, Spark recomputes every fourth.
_CHANGES = int(os.environ.get("TAILRACE_ROUNDS") or 1)
ROUNDS = range(1 + _CHANGES)


def is_verified(names: Iterable[str], name: str, number: int) -> bool:
    """Whether a view is also compared with a recompute in a round."""
    return number > 0 and (_CHANGES > 1 or sorted(names).index(name) % 4 == 0)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A lake and its views by name."""

    args: LakeArgs
    lake: tailrace.Lake
    views: dict[str, Any] = field(default_factory=dict)

    def view(self, name: str, query: str, *, policy: str) -> Any:
        """The view of a query, registered at the first call."""
        if name not in self.views:
            self.views[name] = self.lake.create_view(name, query, policy=policy)
        return self.views[name]

    def oracle(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """A DuckDB with the tables as they are now; the caller closes it."""
        connection = duck.attach(self.args)
        queries.copy_tables(connection, tables, self.lake.snapshot)
        connection.execute("DETACH lake")
        return connection


def refreshed(view: Any) -> tailrace.Iteration:
    """Refresh a view; `explain` has to have said before how, and where."""
    said, before = view.explain(), _runs(view)
    done: tailrace.Iteration = view.refresh()
    if done.strategy not in ("build", "nothing"):
        assert done.strategy == said.strategy, str(said)
        if done.strategy == "full":
            assert said.place == "spark"
        else:
            place = "" if said.place == "memory" else " on Spark"
            after = _runs(view)
            assert [n for n in after if after[n] != before.get(n)] == [f"{done.strategy}{place}"]
    return done


def _runs(view: Any) -> dict[str, Any]:
    """What the view's job remembers of its runs, by strategy and place."""
    runs: dict[str, Any] = view._job().last.memory.get("runs", {})
    return dict(runs)


def check(view: Any, query: str, oracle: duckdb.DuckDBPyConnection, *, verify: bool) -> str:
    """Refresh a view, compare it with a recompute and with DuckDB, and return the strategy."""
    done = refreshed(view)
    if verify:
        report = view.verify()
        assert report.ok, str(report)
    rows = view.to_df().toArrow() if verify else view.to_arrow()
    found = queries.differences(rows, queries.ask(oracle, query))
    assert not found, "\n".join(found[:5])
    return str(done.strategy)
