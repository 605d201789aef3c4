"""The clock that a lake on PostgreSQL measures age with: the database's.

Machines disagree about the time, and one whose clock is days ahead must not take everybody's
history for old. Between two looks at the database's clock, this machine's only counts seconds.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import sqlalchemy as sa

from tailrace.catalog.database import Database
from tailrace.errors import UnavailableError

_LOOK_AGAIN = 60.0  # seconds


class DatabaseClock:
    """A clock that all processes of a lake share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The time now, in UTC."""
        seen = self._seen
        if seen is None or time.monotonic() - seen[1] > _LOOK_AGAIN:
            seen = self._look(seen)
        moment, counted = seen
        return moment + timedelta(seconds=time.monotonic() - counted)

    def _look(self, before: tuple[datetime, float] | None) -> tuple[datetime, float]:
        try:
            with self._database.read() as connection:
                moment = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        except UnavailableError:
            if before is None:
                raise
            return before  # counting goes on
        self._seen = moment, time.monotonic()
        return self._seen
