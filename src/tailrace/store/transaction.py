"""A transaction: a snapshot to read, a workspace to write to, and one commit.

Always true: it reads the lake as it was at its base snapshot, plus its own writes. Objects are
written as it goes; nothing of it is visible to others before `commit`, and nothing after
`rollback`. Here is how it begins, stays alive and ends; what it sees is in `workspace`, what it
changes in `definitions` and `row_changes`. How the workspace becomes a snapshot is in `commit`.

A transaction that has written an object has a row in `tailrace_txn`, from before that object until
its commit or rollback. One whose heartbeat stopped is expired by the sweep, and then cannot commit
any more.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from types import TracebackType

import sqlalchemy as sa

from tailrace.arguments import checked
from tailrace.catalog import configuration
from tailrace.catalog.database import Database
from tailrace.clock import Clock
from tailrace.configuration import Configuration
from tailrace.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from tailrace.log import get_logger
from tailrace.store import tables as t
from tailrace.store.commit import commit, commit_callbacks, snapshot_of_key
from tailrace.store.definitions import Definitions
from tailrace.store.row_changes import RowChanges
from tailrace.store.runtime import TenantRuntime
from tailrace.store.workspace import Commit, Workspace

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


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A transaction that continues in another process."""

    id: str
    base: int  # the snapshot that it reads


@checked
class Transaction(Definitions, RowChanges):
    """Begun by `lake.transaction()`; used as a context manager, it commits at the end."""

    def __init__(
        self,
        runtime: TenantRuntime,
        heartbeat: Heartbeat,
        *,
        check: Callable[[], None] | None = None,
        managed: bool = False,
        base: int | None = None,
        begun: Begun | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """`check` may stop it at any call. While it is `managed`, only its creator may end it.

        It reads the snapshot `base`, by default the newest. With `begun`, it is the rest of a
        transaction that was handed over. Of those with the same `idempotency_key` one commits,
        once; the others end as if they had been that one.
        """
        work = Workspace(
            id=secrets.token_hex(8) if begun is None else begun.id,
            idempotency_key=idempotency_key,
        )
        super().__init__(runtime, work, check)
        self._heartbeat = heartbeat
        self.managed = managed
        self._registered = begun is not None
        self._lock = Lock()
        # The snapshot of the transaction that had the idempotency key before.
        self._done: int | None = None
        if begun is None:
            self.base = self._begin() if base is None else base
        else:
            self.base = begun.base
            heartbeat.renew(begun.id)
        # The snapshot that the commit created; the base while there is none.
        self.snapshot = self.base

    def _begin(self) -> int:
        """The snapshot to read."""
        key, mirror = self._work.idempotency_key, self._runtime.mirror
        newest = mirror.newest()
        # Only now: a transaction with the key that is in the newest snapshot is found here.
        self._done = self._first_with_key()
        if self._done is None:
            return newest
        # What that one read: the same calls then do the same again, without effect.
        base = max(self._done - 1, 0)
        try:
            mirror.check(base)
        except NotFoundError:
            raise InvalidError(
                f"the idempotency key {key!r} was used long ago, for snapshot {self._done}: "
                "what it did is not done again; take another key for something new"
            ) from None
        return base

    @property
    def id(self) -> str:
        """The name of this transaction in the catalog; see `lake.outcome`."""
        return self._work.id

    @property
    def is_repeat(self) -> bool:
        """Whether one with its idempotency key has committed before it began.

        Its writes then have no effect, and its commit returns the snapshot of then.
        """
        return self._done is not None

    def hand_over(self, lasting: timedelta) -> Begun:
        """Let other processes continue it, within some time, before anything is written."""
        self._check_unmanaged()
        self._check_open()
        self._heartbeat.register(self._work.id, self.base, lasting=lasting)
        self._open = False
        return Begun(id=self._work.id, base=self.base)

    def on_commit(self, call: Callable[[Commit], None]) -> None:
        """Call a function within the catalog transaction of the commit.

        What it writes commits with the rest or not at all. If it is all there is to commit, no
        snapshot is created, and it gets the newest.
        """
        self._check_open()
        self._work.on_commit.append(call)

    @property
    def last_on_commit(self) -> Callable[[Commit], None] | None:
        """What was given to `on_commit` last."""
        return self._work.on_commit[-1] if self._work.on_commit else None

    def commit(self) -> int:
        """Make everything visible as one snapshot, and return its number."""
        self._check_unmanaged()
        self._check_open()
        if self._done is not None:
            self.rollback()
            self.snapshot = self._done
            return self.snapshot
        try:
            if not self._registered and not self._work.needs_snapshot:
                self.snapshot = commit_callbacks(self._runtime, self._work)
            elif self._work.needs_snapshot or self._work.on_commit or self._work.idempotency_key:
                self._register()
                self.snapshot = commit(self._runtime, self._work, self.base)
                self._heartbeat.forget(self._work.id)
            else:  # what it did, it undid
                self.rollback()
        except ConflictError:
            self.rollback()
            done = self._first_with_key()
            if done is None:
                raise
            self.snapshot = done
        except BaseException:
            self.rollback()
            raise
        self._open = False
        return self.snapshot

    def _first_with_key(self) -> int | None:
        """The snapshot of a transaction that had the same idempotency key and was first."""
        key = self._work.idempotency_key
        if key is None:
            return None
        with self._runtime.database.read() as connection:
            return snapshot_of_key(connection, self._runtime.tenant, key)

    def rollback(self) -> None:
        """Discard everything. Its objects are deleted now or, if that fails, by the sweep."""
        self._check_unmanaged()
        if not self._open:
            return
        self._open = False
        if not self._registered:
            return
        with suppress(UnavailableError):
            # An error can come after the commit, or leave in doubt whether there was one: only
            # who takes the transaction's row out of the catalog knows that there never will be.
            if self._heartbeat.remove(self._work.id):
                self._runtime.step("given up")
                self._runtime.storage.delete(self._work.objects)

    def __enter__(self) -> Transaction:
        self._check_unmanaged()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.rollback()
        elif self._open:
            self.commit()

    def _check_unmanaged(self) -> None:
        if self.managed:
            raise InvalidError(
                "this transaction commits by itself when the consumer returns, together with the "
                "job's watermark: write through it, and leave its end to the iteration"
            )

    def _register(self) -> None:
        self._check_open()
        with self._lock:
            if not self._registered:
                self._heartbeat.register(self._work.id, self.base)
                self._registered = True
                self._runtime.step("registered")
