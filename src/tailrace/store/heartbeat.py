"""Keeps this process's transactions alive in the catalog while they work.

Always true: a transaction that has written an object has a row in `tailrace_txn`, from before
that object until its commit or rollback. One whose heartbeat stopped is expired by the sweep, and
then cannot commit any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog.database import Database
from tailrace.clock import Clock
from tailrace.configuration import Configuration
from tailrace.log import get_logger
from tailrace.store import tables as t

log = get_logger("tailrace.heartbeat")

_REGISTER = sa.insert(t.transaction)


class Heartbeat:
    """Registers transactions and renews them from a background thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._timeout = Configuration().transaction_timeout
        self._alive: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def register(
        self, txn_id: str, base_snapshot: int, *, lasting: timedelta | None = None
    ) -> None:
        """Enter a transaction, before its first object.

        With `lasting`, nobody has to renew it for so long: it goes on elsewhere.
        """
        now = self._clock.now()
        row = {
            "txn_id": txn_id,
            "base_snapshot": base_snapshot,
            "started_at": now,
            "heartbeat_at": now + (lasting or timedelta(0)),
        }
        self._database.write_one(_REGISTER, row)
        if lasting is None:
            self.renew(txn_id)

    def renew(self, txn_id: str) -> None:
        """Renew a transaction, from now on and until it has ended."""
        with self._lock:
            self._alive.add(txn_id)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="tailrace-heartbeat", daemon=True
                )
                self._thread.start()

    def forget(self, txn_id: str) -> None:
        """Stop renewing a transaction that has ended."""
        with self._lock:
            self._alive.discard(txn_id)

    def remove(self, txn_id: str) -> bool:
        """End a transaction without a commit; False if it was committed or expired before."""
        self.forget(txn_id)
        with self._database.write() as connection:
            statement = sa.delete(t.transaction).where(t.transaction.c.txn_id == txn_id)
            return connection.execute(statement).rowcount == 1

    def beat(self) -> None:
        """Renew every transaction of this process."""
        with self._lock:
            alive = list(self._alive)
        if alive:
            with self._database.write() as connection:
                connection.execute(
                    sa.update(t.transaction)
                    .where(t.transaction.c.txn_id.in_(alive))
                    .values(heartbeat_at=self._clock.now())
                )

    def _learn(self) -> None:
        """Read the timeouts again: the lake's owner may have changed them."""
        with self._database.read() as connection:
            configured = configuration.read(connection)
        self._timeout = configured.transaction_timeout
        self._database.commit_timeout = configured.commit_timeout

    def _run(self) -> None:
        self._attempt(self._learn)
        while not self._stop.wait(self._timeout.total_seconds() / 5):
            self._attempt(self.beat)
            self._attempt(self._learn)

    def _attempt(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:  # noqa: BLE001  (the next may succeed, or the sweep decides)
            log.warning("heartbeat failed", error=repr(error)[:500])

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
