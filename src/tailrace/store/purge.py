"""Removes history that nobody needs any more: its snapshots, then rows, then objects.

Always true: the oldest snapshot of the lake (the horizon) only moves forward, and never past what
someone needs. It moves in one commit, so that what is below is an error for who asks for it and
never a wrong answer. That commit enters a task for each table of which something ended: rows and
objects follow, table by table (`clean`). Killed at any step, the next purge goes on.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.configuration import Configuration
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.clean import AT_ONCE, Cleaned, Pace, clean_schemas, note, superseded
from tailrace.store.runtime import Need, Runtime
from tailrace.store.sweep import Fence, delete_due, is_due, schedule, unfenced
from tailrace.store.tasks import OPEN, NewTask, Scope, enter

# The type of the tasks that it enters, and how urgent they are.
CLEAN, CLEAN_PRIORITY = "clean", 30
# How long the outcomes of commits are kept at least, even by lakes that keep no history.
_OUTCOMES = timedelta(days=1)
_HISTORY = timedelta(days=90)  # how long the history of purges is kept


@dataclass(frozen=True, kw_only=True)
class Purge:
    """What a purge did."""

    at: datetime
    horizon: int  # the oldest snapshot that the lake still has
    held_by: str | None  # what needs that snapshot, if the retention does not
    snapshots: int = 0  # removed
    files: int = 0  # removed from the catalog; their objects go after the grace period
    bytes: int = 0  # their size
    objects: int = 0  # deleted from storage, for this purge and earlier ones

    @property
    def did_something(self) -> bool:
        return bool(self.snapshots or self.files or self.objects)


def nothing_to_do(runtime: Runtime) -> Purge | None:
    """What a purge would say that finds nothing to do; None if there may be something."""
    with runtime.database.read() as connection:
        now, kept = runtime.clock.now(), configuration.read(connection)
        oldest, has_work = connection.execute(_question(now, kept)).one()
    return None if has_work else Purge(at=now, horizon=oldest, held_by=None)


def purge(
    runtime: Runtime,
    *,
    stop: threading.Event | None = None,
    fence: Fence = unfenced,
    clean_tables: Callable[[], Cleaned] | None = None,
) -> Purge:
    """Remove what nobody needs; `stop` ends it early, and the next purge continues.

    `clean_tables` does those of the entered tasks that nobody else does. `fence` is called in each
    transaction: an error ends the purge there.
    """
    run = _Run(runtime, stop or threading.Event(), fence)
    run.move_horizon()
    if clean_tables is not None:
        cleaned = clean_tables()
        run.did(cleaned)
    run.finish_schemas()
    run.delete_objects()
    return run.done


def purges(connection: sa.Connection, limit: int) -> list[Purge]:
    """The last purges that did something, newest first."""
    query = sa.select(t.purge).order_by(t.purge.c.at.desc()).limit(limit)
    names = [f.name for f in fields(Purge)]
    return [Purge(**{n: getattr(row, n) for n in names}) for row in connection.execute(query)]


def _question(now: datetime, kept: Configuration) -> sa.Select[int, bool]:
    """The oldest snapshot, and whether there may be work. Runs often, so indexes answer it."""
    s = dl.snapshot.c
    cutoff = now - kept.snapshot_retention
    # The oldest may go when the next one is old enough to be what time travel finds.
    second = sa.select(s.snapshot_time).order_by(s.snapshot_id).offset(1).limit(1)
    return sa.select(
        lookup.OLDEST,
        sa.or_(
            second.scalar_subquery() <= cutoff,
            sa.exists().where(t.task.c.state.in_(OPEN), t.task.c.type == CLEAN),
            sa.exists().where(is_due(now, kept)),
        ),
    )


class _Run:
    """One purge under way."""

    def __init__(self, runtime: Runtime, stop: threading.Event, fence: Fence) -> None:
        self._runtime, self._stop, self._fence = runtime, stop, fence
        self._database, self._layers = runtime.database, runtime.layers
        self._id = secrets.token_hex(8)
        self._pace = Pace(runtime, stop)
        with self._database.read() as connection:
            oldest = lookup.oldest_snapshot(connection)
        self.done = Purge(at=runtime.clock.now(), horizon=oldest, held_by=None)
        self._has_cleaned = False

    # --- snapshots --------------------------------------------------------------------------

    def move_horizon(self) -> None:
        """Remove the snapshots that nobody needs, and enter tasks for the tables."""
        with self._database.read() as connection:
            oldest, limit = self._span(connection)
        if limit > oldest:
            for layer in self._layers:
                layer.prepare_purge(self._runtime, limit)
        with self._database.read_at_once() as connection:
            oldest, target = self._target(connection)
        if target == oldest:
            return
        with self._database.lock() as connection:
            self._fence(connection)
            # Again: only now can nothing new begin.
            oldest, target = self._target(connection)
            if target > oldest:
                self._forget(connection, oldest, target)
            self._runtime.step("snapshots purged")
        self._runtime.mirror.doubt()
        self._runtime.step("horizon moved")

    def _span(self, connection: sa.Connection) -> tuple[int, int]:
        """The oldest snapshot, and the one that was the newest when the retention began."""
        kept = configuration.read(connection)
        cutoff = self._runtime.clock.now() - kept.snapshot_retention
        oldest = lookup.oldest_snapshot(connection)
        limit = lookup.snapshot_at(connection, cutoff)
        return oldest, oldest if limit is None else limit

    def _target(self, connection: sa.Connection) -> tuple[int, int]:
        """The oldest snapshot, and the one that should become the oldest."""
        oldest, limit = self._span(connection)
        needs = self._transactions(connection, limit)
        for layer in self._layers:
            needs += layer.needs(self._runtime, connection, limit)
        below = (need for need in needs if need.snapshot < limit)
        first = min(below, key=lambda need: need.snapshot, default=None)
        target = limit if first is None else max(oldest, first.snapshot)
        held_by = None if first is None else first.who
        self.done = replace(self.done, horizon=oldest, held_by=held_by)
        return oldest, target

    def _transactions(self, connection: sa.Connection, limit: int) -> list[Need]:
        c = t.transaction.c
        alive = self._runtime.clock.now() - configuration.read(connection).transaction_timeout
        query = sa.select(c.base_snapshot, c.started_at).where(
            c.base_snapshot < limit, c.heartbeat_at >= alive
        )
        return [
            Need(
                snapshot=row.base_snapshot,
                who=f"a transaction that began {row.started_at:%Y-%m-%d %H:%M}",
            )
            for row in connection.execute(query)
        ]

    def _forget(self, connection: sa.Connection, oldest: int, horizon: int) -> None:
        unused = [
            one
            for layer in self._layers
            for one in layer.purging(self._runtime, connection, horizon)
        ]
        for table in (dl.snapshot_changes, dl.snapshot):
            gone = connection.execute(sa.delete(table).where(table.c.snapshot_id < horizon))
        connection.execute(sa.delete(dl.view).where(dl.view.c.end_snapshot <= horizon))
        connection.execute(sa.delete(dl.tag).where(dl.tag.c.end_snapshot <= horizon))
        c, now = t.commit.c, self._runtime.clock.now()
        old = sa.and_(c.snapshot <= horizon, c.committed_at < now - _OUTCOMES)
        connection.execute(sa.delete(t.commit).where(old))
        enter_tasks(connection, oldest, horizon, self._runtime.clock.now(), purge=self._id)
        schedule(connection, [(one.id, one.path) for one in unused], self._runtime.clock.now())
        connection.execute(sa.delete(t.purge).where(t.purge.c.at < self.done.at - _HISTORY))
        self.done = replace(self.done, horizon=horizon)
        self._note(
            connection,
            snapshots=gone.rowcount,
            files=len(unused),
            bytes=sum(one.size for one in unused),
        )

    # --- rows -------------------------------------------------------------------------------

    def did(self, cleaned: Cleaned) -> None:
        """Add what was removed of tables, which is in the history already."""
        self._has_cleaned = bool(cleaned.tables)
        files, size = self.done.files + cleaned.files, self.done.bytes + cleaned.bytes
        self.done = replace(self.done, files=files, bytes=size)

    def finish_schemas(self) -> None:
        """Forget the schemas of which no table is left."""
        if self._has_cleaned or self.done.snapshots:
            with self._database.write() as connection:
                self._fence(connection)
                clean_schemas(connection)
            self._runtime.step("schemas purged")

    # --- objects ----------------------------------------------------------------------------

    def delete_objects(self) -> None:
        """Delete the objects that no reader can still be using."""

        def note(connection: sa.Connection, count: int) -> None:
            self._fence(connection)
            self._note(connection, objects=count)

        limit = min(AT_ONCE, max(1, self._runtime.settings.purge_rate))
        while not self._stop.is_set() and (some := delete_due(self._runtime, limit, note)):
            self._pace.keep(some)

    # --- inside -----------------------------------------------------------------------------

    def _note(self, connection: sa.Connection, **counts: int) -> None:
        """Add what this transaction removes to the history of purges."""
        sums = {name: getattr(self.done, name) + count for name, count in counts.items()}
        self.done = replace(self.done, **sums)
        done = self.done
        new = {"at": done.at, "horizon": done.horizon, "held_by": done.held_by}
        note(connection, self._id, new, **counts)


def enter_tasks(
    connection: sa.Connection, oldest: int, horizon: int, now: datetime, *, purge: str
) -> None:
    """Enter a task for each table of which something ended since the last horizon.

    One that is open looks for itself where the horizon is.
    """
    own = t.own_table.c
    ended = [
        sa.exists().where(table.c.table_id == own.table_id, table.c.end_snapshot <= horizon)
        for table in (dl.data_file, dl.delete_file, dl.table)
    ]
    columns = sa.exists().where(dl.column.c.table_id == own.table_id, superseded(horizon))
    # Only tables that changed since then, or whose rows moved, can have lost anything.
    last = (own.last_change_snapshot, own.last_alter_snapshot, own.last_rewrite_snapshot)
    changed = sa.or_(*(one > oldest for one in last))
    query = sa.select(own.table_id).where(changed, sa.or_(*ended, columns))
    new = [
        NewTask(
            type=CLEAN,
            scope=Scope(table=table_id),
            spec={"purge": purge},
            priority=CLEAN_PRIORITY,
        )
        for table_id in connection.execute(query).scalars()
    ]
    enter(connection, new, now)
