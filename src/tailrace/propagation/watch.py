"""Notices that another process has written to the catalog: PostgreSQL notifies, SQLite is polled.

Only a hint: a runner that is notified too often looks in vain, and one that is not notified finds
out at its next reconciliation.
"""

from __future__ import annotations

import selectors
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tailrace.catalog.database import Database
from tailrace.catalog.postgres import CHANNEL
from tailrace.settings import Settings

# Seconds until a broken watch starts again.
_AGAIN = 0.5
# A server that vanished is noticed after about half a minute, not after hours.
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
}


class Watch:
    """A thread that calls `notify` when something may have changed, until closed."""

    def __init__(self, database: Database, settings: Settings, notify: Callable[[], None]) -> None:
        self._database, self._settings, self._notify = database, settings, notify
        self._stop = threading.Event()
        self._bell, self._heard = socket.socketpair()  # ends a wait for PostgreSQL
        follow = self._follow_sqlite if database.is_sqlite else self._follow_postgres
        self._thread = threading.Thread(
            target=self._run, args=(follow,), name="tailrace-watch", daemon=True
        )
        self._thread.start()

    def _run(self, follow: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                follow()
            except Exception:  # noqa: BLE001  (whatever the driver says: the connection is gone)
                self._stop.wait(_AGAIN)
                self._notify()  # what was missed in between

    def _follow_sqlite(self) -> None:
        path = str(self._database.url.database)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            seen = None
            while not self._stop.wait(self._settings.watch_interval.total_seconds()):
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen = version
                    self._notify()

    def _follow_postgres(self) -> None:
        import psycopg

        url = self._database.url.set(drivername="postgresql")
        address = url.render_as_string(hide_password=False)
        with psycopg.connect(
            address, autocommit=True, connect_timeout=10, **_KEEPALIVE
        ) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._notify()  # what was written before we listened
            with selectors.DefaultSelector() as either:
                either.register(connection, selectors.EVENT_READ)
                either.register(self._heard, selectors.EVENT_READ)
                while not self._stop.is_set():
                    either.select()
                    for _ in connection.notifies(timeout=0):
                        self._notify()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._bell.close()
        self._thread.join()
        self._heard.close()
