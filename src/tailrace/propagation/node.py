"""A process among those that serve the lake: a row with a heartbeat.

A job that is running by a node whose heartbeat stopped is at rest again. Whether clocks agree
decides only how soon: a node that was thought dead cannot commit, because taking over raises the
job's epoch.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.errors import UnavailableError
from tailrace.log import get_logger
from tailrace.store.runtime import Runtime

log = get_logger("tailrace.node")


class Node:
    """Enters itself, and stays alive until closed."""

    def __init__(self, runtime: Runtime, *, serves: bool = True, beating: bool = True) -> None:
        """`serves`: until further notice, not only until something is done."""
        self._serves = serves
        self.id = secrets.token_hex(6)
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.beat()
        if beating:
            self._thread = threading.Thread(target=self._run, name="tailrace-node", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """Say that this node is alive; enter it again, if others have given it up."""
        now = self._runtime.clock.now()
        with self._runtime.database.write() as connection:
            same = t.node.c.node_id == self.id
            found = connection.execute(sa.update(t.node).where(same).values(heartbeat_at=now))
            if found.rowcount == 0:
                connection.execute(
                    sa.insert(t.node).values(
                        node_id=self.id,
                        serves=int(self._serves),
                        host=socket.gethostname(),
                        pid=os.getpid(),
                        started_at=now,
                        heartbeat_at=now,
                    )
                )

    def live(self, connection: sa.Connection) -> set[str]:
        """The nodes that are alive, with this one."""
        return live_nodes(connection, self._runtime) | {self.id}

    def _run(self) -> None:
        interval = self._runtime.settings.node_timeout.total_seconds() / 5
        while not self._stop.wait(interval):
            try:
                self.beat()
            except Exception as error:  # noqa: BLE001  (the next may succeed, or others take over)
                log.warning("heartbeat failed", error=repr(error)[:500])

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            with self._runtime.database.write() as connection:
                connection.execute(sa.delete(t.node).where(t.node.c.node_id == self.id))
        except UnavailableError:
            pass  # its heartbeat will be missed


def live_nodes(connection: sa.Connection, runtime: Runtime, *, serving: bool = False) -> set[str]:
    """The nodes that have been heard of lately: all, or those that serve."""
    oldest = runtime.clock.now() - runtime.settings.node_timeout
    query = sa.select(t.node.c.node_id).where(t.node.c.heartbeat_at >= oldest)
    if serving:
        query = query.where(t.node.c.serves == 1)
    return set(connection.execute(query).scalars())


def delete_dead(connection: sa.Connection, runtime: Runtime) -> None:
    """Delete the rows of nodes that have been gone for long."""
    oldest = runtime.clock.now() - 100 * runtime.settings.node_timeout
    connection.execute(sa.delete(t.node).where(t.node.c.heartbeat_at < oldest))
