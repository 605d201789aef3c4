"""Finds out what is due, by what has changed since it last looked.

Always true: tables that did not change cost nothing, however many there are. One statement asks an
index which have changed; their ids go to the producers, which say what is to be done with them. The
hour's housekeeping stores how far the look went, so that a node that starts does not begin anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import sqlalchemy as sa

from tailrace.catalog.database import in_batches
from tailrace.catalog.part import Int
from tailrace.log import get_logger
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.job import Job
from tailrace.propagation.task_types import PURGE, SWEEP, tending
from tailrace.store import purge as purging
from tailrace.store import tables as t
from tailrace.store import tasks
from tailrace.store.runtime import Runtime
from tailrace.store.tasks import Entered, NewTask

log = get_logger("tailrace.maintenance")

Producer = Callable[[Runtime, Sequence[int]], Iterable[NewTask]]
# They get ids of tables whose rows have changed, a few hundred at a time, and give the tasks that
# are due. One that an open task is in the way of is not entered: they are asked again after that.
PRODUCERS: list[Producer] = []

_T, _COUNT = t.own_table.c, t.counter.c
CHANGED = (
    sa.select(_T.table_id, _T.last_change_snapshot)
    .where(_T.last_change_snapshot > sa.bindparam("seen", type_=Int))
    .order_by(_T.last_change_snapshot)
)


class Monitor:
    """What one node knows of what is due."""

    def __init__(self, runtime: Runtime, *, seen: int | None = None) -> None:
        """`seen`: the last snapshot whose changes were looked at; None: as the lake has noted."""
        self._runtime = runtime
        self.seen = seen
        self._lock = threading.Lock()
        self._again: set[int] = set()  # tables of which a task has ended
        self._moved: dict[int, Job] = {}  # jobs whose output has changed

    def note(self, job: Job) -> None:
        """Note a job that has finished an iteration, or is seen for the first time."""
        consumer = find_consumer(job.kind)
        if consumer is not None and consumer.needs_maintenance:
            with self._lock:
                self._moved[job.id] = job

    def ended(self, table_id: int | None) -> None:
        """Note that a task of a table has ended: another may be due."""
        if table_id is not None:
            with self._lock:
                self._again.add(table_id)

    def look(self, *, tables: bool = True) -> list[Entered]:
        """Ask about all that has changed, or only about jobs, and enter what is due."""
        again: set[int] = set()
        with self._lock:
            moved, self._moved = self._moved, {}
            if tables:
                again, self._again = self._again, again
        seen, new = self.seen, list[NewTask]()
        try:
            if tables:
                seen, new = self._of_tables(again)
            new += [tending(job.sources[0], job.id) for job in moved.values() if self._is_due(job)]
            entered = self._enter(new)
        except BaseException:  # the catalog is away: all of it is still to be looked at
            with self._lock:
                self._again |= again
                self._moved = {**moved, **self._moved}
            raise
        self.seen = seen
        return entered

    def _enter(self, new: Sequence[NewTask]) -> list[Entered]:
        entered: list[Entered] = []
        for some in in_batches(new):  # others want to commit in between
            with self._runtime.database.lock() as connection:
                entered += tasks.enter(connection, some, self._runtime.clock.now())
        return entered

    def _of_tables(self, again: set[int]) -> tuple[int, list[NewTask]]:
        """The snapshot up to which it has looked, and what is due."""
        seen = self._stored() if self.seen is None else self.seen
        changed = self._runtime.database.rows(CHANGED, {"seen": seen})
        tables = sorted({row.table_id for row in changed} | again)
        new = [
            task
            for some in in_batches(tables)
            for producer in PRODUCERS
            for task in self._asked(producer, some)
        ]
        return changed[-1].last_change_snapshot if changed else seen, new

    def _asked(self, producer: Producer, tables: Sequence[int]) -> list[NewTask]:
        try:
            return list(producer(self._runtime, tables))
        except Exception as error:  # noqa: BLE001  (the others are asked all the same)
            log.warning("what is due is not known", tables=len(tables), error=repr(error)[:500])
            return []

    def _is_due(self, job: Job) -> bool:
        consumer = find_consumer(job.kind)
        assert consumer is not None
        try:
            return consumer.is_maintenance_due(self._runtime.of_tenant(job.tenant), job.id)
        except Exception as error:  # noqa: BLE001  (a consumer may raise anything; the job goes on)
            log.warning("what is due is not known", job=job.full_name, error=repr(error)[:500])
            return False

    # --- every hour -------------------------------------------------------------------------

    def keep_house(self) -> None:
        """Enter what is due by the hour, and store how far this one has looked."""
        runtime, now = self._runtime, self._runtime.clock.now()
        new = [] if purging.nothing_to_do(runtime) else [PURGE]
        with runtime.database.lock() as connection:
            # Once for all nodes: it lists every object of the lake.
            last = tasks.last_begun(connection, SWEEP.type)
            if last is None or now - last >= runtime.settings.upkeep_interval:
                new.append(SWEEP)
            tasks.enter(connection, new, now)
        self.store()

    def store(self) -> None:
        """Store how far this one has looked."""
        if self.seen is not None:
            further = sa.update(t.counter).where(_COUNT.name == t.LOOKED, _COUNT.value < self.seen)
            with self._runtime.database.write() as connection:
                connection.execute(further.values(value=self.seen))

    def _stored(self) -> int:
        query = sa.select(_COUNT.value).where(_COUNT.name == t.LOOKED)
        with self._runtime.database.read() as connection:
            return int(connection.execute(query).scalar_one())
