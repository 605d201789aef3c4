"""A process that serves the lake: a row with a heartbeat.

Jobs of a node whose heartbeat stopped are at rest again. Clocks that disagree only affect how soon:
a node that was wrongly taken for dead can't commit, because taking a job over raises its epoch.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.clock import Clock
from tailrace.configuration import Configuration
from tailrace.errors import UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import tables as t
from tailrace.store.runtime import Runtime

log = get_logger("tailrace.node")


class Node:
    """The node of this process: alive from when it is made until it is closed."""

    def __init__(self, runtime: Runtime, *, serves: bool = True, beating: bool = True) -> None:
        """`serves`: until it is closed, not only until something is fresh."""
        self._serves = serves
        self._fault: str | None = None  # why it stands back
        self._timeout = Configuration().node_timeout  # as last read
        self.id = secrets.token_hex(6)
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.beat()
        if beating:
            self._thread = threading.Thread(target=self._run, name="tailrace-node", daemon=True)
            self._thread.start()

    def beat(self) -> None:
        """Renew the heartbeat; enter the node again if others have deleted it."""
        now = self._runtime.clock.now()
        with self._runtime.database.write() as connection:
            self._timeout = configuration.read(connection).node_timeout
            same = t.node.c.node_id == self.id
            updated = connection.execute(
                sa.update(t.node).where(same).values(heartbeat_at=now, fault=self._fault)
            )
            if updated.rowcount == 0:
                connection.execute(
                    sa.insert(t.node).values(
                        node_id=self.id,
                        serves=int(self._serves),
                        host=socket.gethostname(),
                        pid=os.getpid(),
                        started_at=now,
                        heartbeat_at=now,
                        fault=self._fault,
                    )
                )

    def say(self, fault: str | None) -> None:
        """Publish why this node stands back, or that it works: now, or with a later heartbeat."""
        if fault != self._fault:
            self._fault = fault
            try:
                self.beat()
            except Exception as error:  # noqa: BLE001  (the catalog is away, too)
                log.warning("heartbeat failed", error=repr(error)[:500])

    def others_are_well(self) -> bool:
        """Whether another node serves the lake, and does not stand back."""
        try:
            with self._runtime.database.read() as connection:
                return bool(live_nodes(connection, self._runtime.clock, serving=True) - {self.id})
        except UnavailableError:
            return False

    def live(self, connection: sa.Connection) -> set[str]:
        """The nodes that are alive, with this one."""
        return live_nodes(connection, self._runtime.clock) | {self.id}

    def _run(self) -> None:
        while not self._stop.wait(self._timeout.total_seconds() / 5):
            if self._runtime.database.is_outdated:
                log.error("the lake was upgraded: this node leaves its work to newer ones")
                return
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


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """A process that serves the lake."""

    id: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    fault: str | None  # why it stands back, and leaves the jobs to others

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def serving_nodes(connection: sa.Connection, clock: Clock) -> list[NodeStatus]:
    """The live nodes that serve the lake, the oldest first."""
    c = t.node.c
    columns = (c.node_id.label("id"), c.host, c.pid, c.started_at, c.heartbeat_at, c.fault)
    query = sa.select(*columns).where(c.heartbeat_at >= _oldest(connection, clock), c.serves == 1)
    rows = connection.execute(query.order_by(c.started_at, c.node_id)).mappings()
    return [NodeStatus(**row) for row in rows]


def common_fault(connection: sa.Connection, clock: Clock) -> str | None:
    """Why no node is working, if there are nodes and all of them stand back."""
    faults = [node.fault for node in serving_nodes(connection, clock)]
    return None if None in faults else next((fault for fault in faults if fault), None)


def live_nodes(connection: sa.Connection, clock: Clock, *, serving: bool = False) -> set[str]:
    """The nodes with a recent heartbeat: all, or those that serve and don't stand back."""
    query = sa.select(t.node.c.node_id).where(t.node.c.heartbeat_at >= _oldest(connection, clock))
    if serving:
        query = query.where(t.node.c.serves == 1, t.node.c.fault.is_(None))
    return set(connection.execute(query).scalars())


def _oldest(connection: sa.Connection, clock: Clock) -> datetime:
    return clock.now() - configuration.read(connection).node_timeout


def delete_dead(connection: sa.Connection, clock: Clock) -> None:
    """Delete the rows of nodes that have long been dead."""
    oldest = clock.now() - 100 * configuration.read(connection).node_timeout
    connection.execute(sa.delete(t.node).where(t.node.c.heartbeat_at < oldest))
