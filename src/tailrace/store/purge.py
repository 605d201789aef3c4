"""Removes history that nobody needs any more: its snapshots, then rows, then objects.

Always true: the oldest snapshot of the lake (the horizon) only moves forward, and never past what
someone needs. It moves in one commit, so that what is below is an error for who asks for it and
never a wrong answer. That commit enters a task for each table of which something ended: rows and
objects follow, table by table (`clean`). Whatever ended at or before the horizon is visible at no
snapshot that is left; and what keeps ids and names from being given twice stays as long as its
table does. Killed at any step, the next purge goes on.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.configuration import Configuration
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.runtime import Layer, Need, Runtime
from tailrace.store.sweep import Fence, delete_due, is_due, schedule, unfenced
from tailrace.store.tasks import OPEN, NewTask, Scope, enter

# The type of the tasks that it enters, and how urgent they are.
CLEAN, CLEAN_PRIORITY = "clean", 30
# Where a table has rows, beside its files.
_OF_TABLES = (
    dl.column,
    dl.table_stats,
    dl.schema_versions,
    t.own_table,
    t.own_column,
    t.vector_column,
)
_AT_ONCE = 500  # files in a transaction
# How long the outcomes of commits are kept at least, even by lakes that keep no history.
_OUTCOMES = timedelta(days=1)
_HISTORY = timedelta(days=90)  # how long the history of purges is kept


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What the cleaning of tables has removed from the catalog."""

    tables: int = 0
    files: int = 0
    bytes: int = 0


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


def has_work(runtime: Runtime) -> Purge | None:
    """None if a purge may find something to do; else what it would say."""
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


class _Pace:
    """Keeps what is removed within the rate."""

    def __init__(self, runtime: Runtime, stop: threading.Event) -> None:
        self._rate, self._stop = max(1, runtime.settings.purge_rate), stop
        self._began, self._handled = time.monotonic(), 0

    def keep(self, count: int) -> None:
        """Wait until so many more files are within the rate."""
        self._handled += count
        ahead = self._handled / self._rate - (time.monotonic() - self._began)
        if count and ahead > 1:  # a second's worth may come at once
            self._stop.wait(ahead)


class _Run:
    """One purge under way."""

    def __init__(self, runtime: Runtime, stop: threading.Event, fence: Fence) -> None:
        self._runtime, self._stop, self._fence = runtime, stop, fence
        self._database, self._layers = runtime.database, runtime.layers
        self._id = secrets.token_hex(8)
        self._pace = _Pace(runtime, stop)
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

        limit = min(_AT_ONCE, max(1, self._runtime.settings.purge_rate))
        while not self._stop.is_set() and (some := delete_due(self._runtime, limit, note)):
            self._pace.keep(some)

    # --- inside -----------------------------------------------------------------------------

    def _note(self, connection: sa.Connection, **counts: int) -> None:
        """Add what this transaction removes to the history of purges."""
        sums = {name: getattr(self.done, name) + count for name, count in counts.items()}
        self.done = replace(self.done, **sums)
        new = Purge(at=self.done.at, horizon=self.done.horizon, held_by=self.done.held_by)
        note(connection, self._id, new, **counts)


def clean(
    runtime: Runtime,
    table_id: int,
    *,
    purge: str,
    stop: threading.Event,
    fence: Fence,
    finish: Callable[[sa.Connection], None],
) -> Cleaned:
    """Remove what ended of a table at or before the horizon, for the purge of that id.

    `finish` is called in the last transaction. Stopped before, it is not.
    """
    done, pace = Cleaned(tables=1), _Pace(runtime, stop)
    while not stop.is_set():
        with runtime.database.write() as connection:
            fence(connection)
            horizon = lookup.oldest_snapshot(connection)
            sizes, count = _take_files(runtime, connection, table_id, horizon)
            new = Purge(at=runtime.clock.now(), horizon=horizon, held_by=None)
            note(connection, purge, new, files=len(sizes), bytes=sum(sizes))
        done = replace(done, files=done.files + len(sizes), bytes=done.bytes + sum(sizes))
        pace.keep(len(sizes))
        if count:
            runtime.step("files purged")
        elif not stop.is_set() and _finish_table(runtime, table_id, horizon, finish):
            runtime.step("table purged")
            break
    return done


def _finish_table(
    runtime: Runtime, table_id: int, horizon: int, finish: Callable[[sa.Connection], None]
) -> bool:
    """Finish a table, unless the horizon has moved on."""
    # Under the lock, where it cannot: whoever moves it sees that the table has its task.
    with runtime.database.lock() as connection:
        if lookup.oldest_snapshot(connection) != horizon:
            return False
        if clean_table(connection, table_id, horizon, runtime.layers):
            clean_schemas(connection)
        finish(connection)
    return True


def _take_files(
    runtime: Runtime, connection: sa.Connection, table_id: int, horizon: int
) -> tuple[list[int], int]:
    """Remove some of a table's ended files from the catalog; their sizes, and how many ended."""
    prefix = table_path(connection, table_id)
    ids = ended_ids(connection, dl.data_file.c.data_file_id, table_id, horizon, _AT_ONCE)
    taken = delete_files(connection, dl.data_file, dl.data_file.c.data_file_id.in_(ids))
    taken += delete_files(connection, dl.delete_file, dl.delete_file.c.data_file_id.in_(ids))
    for table in (dl.file_column_stats, t.own_file):
        connection.execute(sa.delete(table).where(table.c.data_file_id.in_(ids)))
    if not ids:  # delete files whose data file goes on
        ids = ended_ids(connection, dl.delete_file.c.delete_file_id, table_id, horizon, _AT_ONCE)
        taken += delete_files(connection, dl.delete_file, dl.delete_file.c.delete_file_id.in_(ids))
    files = [(number, f"{prefix}{path}") for number, path, _ in taken]
    schedule(connection, files, runtime.clock.now())
    return [size for _, _, size in taken], len(ids)


def note(connection: sa.Connection, purge: str, new: Purge, **counts: int) -> None:
    """Add to what a purge has removed; `new` is its entry if there is none yet."""
    if not any(counts.values()):
        return
    c = t.purge.c
    more = {name: c[name] + count for name, count in counts.items()}
    same = sa.update(t.purge).where(c.purge_id == purge)
    if not connection.execute(same.values(**more)).rowcount:
        values = {**asdict(new), **counts}
        connection.execute(sa.insert(t.purge).values(purge_id=purge, **values))


# --- what the catalog is relieved of ------------------------------------------------------------


def _superseded(horizon: int) -> sa.ColumnElement[bool]:
    """Of a column that was dropped, the last row stays: it keeps its id and its name in files
    from being given again.
    """
    c, later = dl.column.c, dl.column.alias()
    return sa.and_(
        c.end_snapshot <= horizon,
        sa.exists().where(
            later.c.table_id == c.table_id,
            later.c.column_id == c.column_id,
            later.c.begin_snapshot >= c.end_snapshot,
        ),
    )


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
    columns = sa.exists().where(dl.column.c.table_id == own.table_id, _superseded(horizon))
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


def table_path(connection: sa.Connection, table_id: int) -> str:
    """Where a table's objects are, even if it was dropped."""
    query = (
        sa.select(dl.schema.c.path, dl.table.c.path)
        .join(dl.schema, dl.schema.c.schema_id == dl.table.c.schema_id)
        .where(dl.table.c.table_id == table_id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return "" if row is None else f"{row[0]}{row[1]}"


def ended_ids(
    connection: sa.Connection, number: sa.Column[Any], table_id: int, horizon: int, limit: int
) -> Sequence[int]:
    """Some of the files of a table that ended at or before a snapshot, by their ids."""
    c = number.table.c
    query = sa.select(number).where(c.table_id == table_id, c.end_snapshot <= horizon)
    return connection.execute(query.limit(limit)).scalars().all()


def delete_files(
    connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]
) -> list[tuple[int, str, int]]:
    """Delete rows of files; returns their ids, paths and sizes."""
    (number,) = table.primary_key.columns
    statement = sa.delete(table).where(condition)
    rows = connection.execute(statement.returning(number, table.c.path, table.c.file_size_bytes))
    return [(row[0], row[1], row[2]) for row in rows]


def clean_table(
    connection: sa.Connection, table_id: int, horizon: int, layers: Iterable[Layer]
) -> bool:
    """Finish a table, once its ended files are gone; whether nothing is left of it."""
    connection.execute(
        sa.delete(dl.column).where(dl.column.c.table_id == table_id, _superseded(horizon))
    )
    c = dl.table.c
    connection.execute(sa.delete(dl.table).where(c.table_id == table_id, c.end_snapshot <= horizon))
    left = connection.execute(sa.select(c.table_id).where(c.table_id == table_id)).first()
    if left is None:  # it was dropped
        for table in _OF_TABLES:
            connection.execute(sa.delete(table).where(table.c.table_id == table_id))
        for layer in layers:
            layer.forget_table(connection, table_id)
    return left is None


def clean_schemas(connection: sa.Connection) -> None:
    """Delete the rows of dropped schemas whose last table is gone."""
    c = dl.schema.c
    inside = [sa.exists().where(o.c.schema_id == c.schema_id) for o in (dl.table, dl.view)]
    oldest = lookup.oldest_snapshot(connection)
    statement = sa.delete(dl.schema).where(c.end_snapshot <= oldest, *(~some for some in inside))
    gone = connection.execute(statement.returning(c.schema_id)).scalars().all()
    connection.execute(sa.delete(t.own_schema).where(t.own_schema.c.schema_id.in_(gone)))
