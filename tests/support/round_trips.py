"""Counts what a lake asks of its catalog: exact, where times are not.

On SQLite a call of the driver with a statement, also one that begins or ends a transaction; on
PostgreSQL a round trip, as seen on the wire by a proxy: whatever the client sends at once, up to
the server's answer.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tailrace
    from tests.support.proxy import Proxy


class Statements(list[str]):
    """The statements of an SQLite catalog, in their order."""

    def __init__(self, lake: tailrace.Lake) -> None:
        super().__init__()
        engine = lake.runtime.database.engine
        engine.dispose()
        noted = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                noted.append(statement)
                return super().execute(statement, *values)

            def executemany(self, statement: str, *values: Any) -> sqlite3.Cursor:
                noted.append(statement)
                return super().executemany(statement, *values)

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = Cursor) -> Any:
                return super().cursor(factory)

        @sa.event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
            options["factory"] = Connection


class Counter:
    """What was asked so far, on either kind of catalog."""

    def __init__(self, lake: tailrace.Lake, proxy: Proxy | None) -> None:
        self._proxy = proxy
        self.statements = Statements(lake) if proxy is None else []

    @property
    def total(self) -> int:
        return len(self.statements) if self._proxy is None else self._proxy.round_trips

    @contextmanager
    def counted(self) -> Iterator[list[int]]:
        """A list that has one number after the block: how many there were in it."""
        before, counts = self.total, []
        yield counts
        counts.append(self.total - before)
