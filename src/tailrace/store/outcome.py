"""Whether a commit happened, for those who never got the answer.

Always true: a transaction that commits enters its id, in the same catalog transaction, and under
the commit lock. So whoever holds the lock and finds no entry knows that a COMMIT which was sent
before did not happen.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.database import CommitLostError
from tailrace.errors import CommitUnknownError, UnavailableError
from tailrace.store import tables as t
from tailrace.store.runtime import TenantRuntime
from tailrace.store.workspace import Workspace

_C = t.commit.c
ENTER = sa.insert(t.commit)  # that a transaction has committed
_BY_ID = sa.select(_C.snapshot).where(
    _C.txn_id == sa.bindparam("id"), _C.tenant == sa.bindparam("owner")
)
_BY_KEY = sa.select(_C.snapshot).where(
    _C.idempotency_key == sa.bindparam("key"), _C.tenant == sa.bindparam("owner")
)
# Kept at least this long, even by lakes that keep no history.
_KEPT = timedelta(days=1)


def entry(runtime: TenantRuntime, work: Workspace, snapshot: int) -> dict[str, Any]:
    """What `ENTER` takes."""
    return {
        "txn_id": work.id,
        "tenant": runtime.tenant,
        "snapshot": snapshot,
        "idempotency_key": work.idempotency_key,
        "committed_at": runtime.clock.now(),
    }


def of_transaction(connection: sa.Connection, tenant: str, txn_id: str) -> int | None:
    """The snapshot that a transaction committed as; None if it has not."""
    snapshot = connection.execute(_BY_ID, {"id": txn_id, "owner": tenant}).scalar_one_or_none()
    return None if snapshot is None else int(snapshot)


def of_key(connection: sa.Connection, tenant: str, key: str) -> int | None:
    """The snapshot of the transaction that used an idempotency key; None if none has committed."""
    snapshot = connection.execute(_BY_KEY, {"key": key, "owner": tenant}).scalar_one_or_none()
    return None if snapshot is None else int(snapshot)


def ask(runtime: TenantRuntime, txn_id: str) -> int | None:
    """The snapshot that a transaction committed as; None if no COMMIT that was sent took effect.

    Under the lock: who sent the COMMIT held it, and so has ended.
    """
    with runtime.database.lock() as connection:
        return of_transaction(connection, runtime.tenant, txn_id)


def settle(runtime: TenantRuntime, txn_id: str, lost: CommitLostError) -> int:
    """Find out what became of a commit whose answer was lost.

    Returns the snapshot if it happened. If it did not, the loss is raised: nothing was done, and
    it can be tried again. CommitUnknownError if the catalog stays away.
    """
    deadline = time.monotonic() + runtime.settings.lock_timeout.total_seconds()
    pause = 0.05
    while True:
        try:
            snapshot = ask(runtime, txn_id)
            break
        except UnavailableError as error:
            if time.monotonic() + pause >= deadline:
                raise CommitUnknownError(txn_id) from error
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
    if snapshot is None:
        raise lost
    return snapshot


def forget(connection: sa.Connection, horizon: int, now: datetime) -> None:
    """Remove the outcomes of commits whose history was purged."""
    connection.execute(
        sa.delete(t.commit).where(_C.snapshot <= horizon, _C.committed_at < now - _KEPT)
    )
