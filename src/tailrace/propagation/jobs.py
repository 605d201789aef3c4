"""`lake.jobs`: what users call to register, change, watch and drop jobs.

Always true: a call that changes something writes to the job log, in its own transaction or the
user's, and takes effect with the commit. Running processes learn of it from the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from tailrace.arguments import LONGEST_TIMEOUT, Count, Name, Seconds, TableName, checked, show
from tailrace.errors import (
    Action,
    ConflictError,
    Fix,
    InvalidError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
)
from tailrace.propagation import history, joblog, retry
from tailrace.propagation import tables as t
from tailrace.propagation.consumer import check_outside, find_consumer
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import AT_REST, STOPPED, Job, JobRecord, NewJob, State
from tailrace.propagation.joblog import stored_state
from tailrace.propagation.node import common_fault, live_nodes
from tailrace.propagation.registration import (
    Registration,
    check_retention,
    has_lost_a_source,
)
from tailrace.propagation.spec import JobSpec, complete, updated
from tailrace.propagation.status import JobStatus, statuses
from tailrace.store import lookup
from tailrace.store.names import check_name, fold, quoted_name, split_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.transaction import Transaction


@checked
class Jobs:
    """The jobs of a lake, as one tenant sees them.

    Every call that changes something takes `txn=`, to be part of that transaction.
    """

    def __init__(
        self,
        runtime: TenantRuntime,
        begin: Callable[[], Transaction],
        run_one: Callable[[Callable[[Job], bool], float | None], None],
    ) -> None:
        self._runtime, self._begin, self._run_one = runtime, begin, run_one
        self._registration = Registration(runtime)

    # --- register and unregister ------------------------------------------------------------

    def register(
        self,
        table: TableName,
        name: Name,
        spec: dict[str, Any],
        *,
        txn: Transaction | None = None,
        upstream: Sequence[int] = (),
        free_home: bool = False,
    ) -> bool:
        """Register a job on a table; False if there is one of that name.

        lake.jobs.register("sales.orders", "copy", {
            "consumer": {"kind": "replica", "table": "sales.orders_copy"}})

        The rest is for consumers that make jobs themselves. `upstream` are the ids of jobs whose
        output this one reads: they are brought to a snapshot before it, and in the same commit;
        its sources include theirs. With `free_home` it is named under something that is no
        table, and the spec has to name its sources.
        """
        check_name(name, "job")
        wanted = complete(spec)
        if free_home and not wanted.sources:
            raise InvalidError(f"the spec of {table}/{name} has to name its sources")
        if txn is None:
            with self._begin() as own:
                return self._register(own, table, name, wanted, upstream, free_home=free_home)
        return self._register(txn, table, name, wanted, upstream, free_home=free_home)

    def _register(
        self,
        txn: Transaction,
        table: TableName,
        name: Name,
        spec: JobSpec,
        upstream: Sequence[int],
        *,
        free_home: bool,
    ) -> bool:
        home = home_of(table)
        if self._registration.is_pending(txn, home, name):
            return False
        at = [] if free_home else [txn.info(table)]
        sources = [txn.info(source) for source in spec.sources] or at
        new = NewJob(home=home, name=name, spec=spec, upstream=upstream)
        return self._registration.register(txn, new, sources)

    def unregister(
        self, table: TableName, name: Name, *, cascade: bool = False, txn: Transaction | None = None
    ) -> bool:
        """Drop a job, and the tables that it derives; False if there is none.

        From the commit on, nothing is written for the job. Without `txn` the call also waits until
        a running iteration has ended. `cascade` drops what is downstream too.
        """
        home = home_of(table)
        if txn is not None and self._registration.is_pending(txn, home, name):
            raise InvalidError(f"{home}/{name} is registered by this very transaction")
        with self._runtime.database.read() as connection:
            job = joblog.find(connection, self._runtime.tenant, home, name)
        if job is None:
            return False
        if txn is not None:
            if txn.managed and txn.acts_for(job.id):
                raise InvalidError(f"{home}/{name} cannot unregister itself from its own consumer")
            if txn.acts_for(job.id):
                return False  # this transaction drops it already
            self._registration.drop(txn, job, cascade=cascade)
            return True
        check_outside("lake.jobs.unregister(…) without txn=")
        try:
            with self._begin() as own:
                dropped = self._registration.drop(own, job, cascade=cascade)
        except ConflictError:
            with self._runtime.database.read() as connection:
                now = joblog.record(connection, job.id)
            if now is None or now.dropped_at is not None:
                return False  # another transaction dropped it first
            raise
        for job_id in dropped:
            self._registration.wait_for_rest(job_id)
        return True

    # --- change -----------------------------------------------------------------------------

    def update(
        self,
        table: TableName,
        name: Name,
        spec: dict[str, Any],
        *,
        interrupt: bool = False,
        txn: Transaction | None = None,
    ) -> None:
        """Overwrite fields of a job's spec; empty ones keep their value.

        A running iteration goes on with the old ones, unless `interrupt`.
        """

        def change(connection: sa.Connection, job: JobRecord) -> None:
            new = updated(job.spec, spec)
            check_retention(connection, new)
            consumer = find_consumer(job.kind)
            if consumer is not None:
                consumer.check_update(job.spec.consumer, new.consumer)
            write = joblog.stop if interrupt else joblog.write
            write(connection, job.id, spec=new)

        self._change(table, name, change, txn)

    def pause(self, table: TableName, name: Name, *, txn: Transaction | None = None) -> None:
        """Start no new iteration of a job until `resume`; one that is running may finish."""
        self._change(
            table,
            name,
            lambda connection, job: joblog.write(connection, job.id, state=State.PAUSED),
            txn,
        )

    def resume(self, table: TableName, name: Name, *, txn: Transaction | None = None) -> None:
        """Resume a job that was paused or canceled, or that has failed."""

        def change(connection: sa.Connection, job: JobRecord) -> None:
            if has_lost_a_source(connection, job.id):
                raise InvalidError(retry.source_gone(job.full_name))
            joblog.write(
                connection,
                job.id,
                state=State.IDLE if job.node is None else State.RUNNING,
                tries=0,
                retry_at=None,
                last=job.last.with_error(None),
            )

        self._change(table, name, change, txn)

    def cancel(self, table: TableName, name: Name, *, txn: Transaction | None = None) -> None:
        """Stop a job's running iteration, and start no other until `resume`."""
        self._change(
            table,
            name,
            lambda connection, job: joblog.stop(connection, job.id, state=State.CANCELED),
            txn,
        )

    def _change(
        self,
        table: str,
        name: str,
        change: Callable[[sa.Connection, JobRecord], object],
        txn: Transaction | None,
    ) -> None:
        home = home_of(table)

        def apply(connection: sa.Connection) -> None:
            change(connection, self._find(connection, home, name))

        if txn is not None:
            if not self._registration.is_pending(txn, home, name):
                with self._runtime.database.read() as connection:
                    self._find(connection, home, name)  # raise at once if there is none
            txn.on_commit(lambda commit: apply(commit.connection))
            return
        with self._runtime.database.lock() as connection:
            apply(connection)

    # --- look -------------------------------------------------------------------------------

    def status(self, table: TableName, name: Name) -> JobStatus:
        """The status of a job."""
        with self._runtime.database.read() as connection:
            job = self._find(connection, home_of(table), name)
            return statuses(connection, [job], common_fault(connection, self._runtime.clock))[0]

    def list(self, state: str | None = None) -> Sequence[JobStatus]:
        """All jobs, or those in a state; `completed` stands for all that are at rest."""
        states = [*State, State.COMPLETED]
        if state is not None and state not in states:
            raise InvalidError(f"no job is ever {show(state)}: {', '.join(states)}")
        c = t.job.c
        conditions = [c.tenant == self._runtime.tenant]
        if state is not None:
            stored = state if state == State.COMPLETED else stored_state(State(state))
            conditions.append(c.state == stored)
        with self._runtime.database.read() as connection:
            jobs = joblog.records(connection, *conditions)
            known = statuses(connection, jobs, common_fault(connection, self._runtime.clock))
        return [job for job in known if job.state == state] if state in AT_REST else known

    def history(
        self, table: TableName | None = None, name: Name | None = None, *, limit: Count = 100
    ) -> Sequence[Iteration]:
        """The last iterations, newest first: of one job, of a table's jobs, or of all."""
        with self._runtime.database.read() as connection:
            home = None if table is None else home_of(table)
            job_id = None
            if home is not None and name is not None:
                job_id = self._find(connection, home, name).id
            tenant = self._runtime.tenant
            return history.iterations(connection, tenant, home=home, job_id=job_id, limit=limit)

    def wait(
        self,
        table: TableName,
        name: Name,
        snapshot: int | None = None,
        timeout: Seconds | timedelta | None = None,
    ) -> None:
        """Return when a job's output reflects a snapshot, by default the newest one now.

        If no process serves the lake, this one does the work.
        """
        check_outside("lake.jobs.wait(…)")
        limit = seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        home = home_of(table)
        with self._runtime.database.read() as connection:
            newest = lookup.newest_snapshot(connection)
            target = newest if snapshot is None else snapshot
            if target > newest:
                raise InvalidError(f"there is no snapshot {target} yet: the newest is {newest}")
            self._find(connection, home, name)
        self._wait_for_watermark(home, name, target, deadline)

    def _wait_for_watermark(
        self, home: str, name: str, target: int, deadline: float | None
    ) -> None:
        changed = threading.Event()
        end_listening = self._runtime.database.listen(changed.set)
        try:
            while True:
                changed.clear()
                now = self.status(home, name)
                if now.watermark is not None and now.watermark >= target:
                    return
                if now.state in STOPPED or now.is_held:
                    reason = now.error if now.state in STOPPED else now.note
                    reason = reason or f"it is {now.state}"
                    raise JobFailedError(f"{home}/{name} does not get to {target}: {reason}")
                if deadline is not None and time.monotonic() >= deadline:
                    raise UnavailableError(
                        f"{home}/{name} is at {now.watermark}, not yet at {target}"
                        + (f": {now.error or now.note}" if now.error or now.note else "")
                    )
                self._run_unless_served(now.job_id, deadline)
                changed.wait(0.1)
        finally:
            end_listening()

    def _run_unless_served(self, job_id: int, deadline: float | None) -> None:
        """Do the work here if no process does it: checked each time, for one may have left."""
        with self._runtime.database.read() as connection:
            if live_nodes(connection, self._runtime.clock, serving=True):
                return
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        self._run_one(lambda job: job.id == job_id, left)

    def _find(self, connection: sa.Connection, home: str, name: str) -> JobRecord:
        job = joblog.find(connection, self._runtime.tenant, home, name)
        if job is None:
            raise NotFoundError(f"there is no job {home}/{name}", fix=Fix(Action.LIST_JOBS))
        return job


def seconds(timeout: float | timedelta | None) -> float | None:
    """A time limit in seconds; None for none."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if timeout is not None and not 0 <= timeout <= LONGEST_TIMEOUT:
        raise InvalidError(
            f"a timeout is from 0 to {LONGEST_TIMEOUT:,} seconds, not {show(timeout)}"
        )
    return None if timeout is None else float(timeout)


def home_of(table: str) -> str:
    """A table's name as the job log has it."""
    return quoted_name(*(fold(part) for part in split_name(table)))
