"""Registering and dropping jobs: checked at once, entered in the job log by the commit.

Always true: a job whose name another transaction took meanwhile, or whose table it dropped, fails
the commit. From the commit that drops a job on, nothing is written for it. A job that others read
from is only dropped together with them, and one whose sources are dropped never runs again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.errors import Action, ConflictError, Fix, InvalidError
from tailrace.log import get_logger
from tailrace.propagation import joblog, retry
from tailrace.propagation.consumer import find_consumer, is_broken, why_missing
from tailrace.propagation.job import JobError, JobRecord, NewJob, State
from tailrace.propagation.node import live_nodes
from tailrace.propagation.outputs import check_no_loop, derived_by
from tailrace.propagation.spec import JobSpec
from tailrace.propagation.trigger import parse_interval
from tailrace.store import lookup
from tailrace.store.names import fold, quoted_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction
from tailrace.store.workspace import Commit


class Registration:
    """Registers and drops jobs as parts of transactions."""

    def __init__(self, runtime: TenantRuntime) -> None:
        self._runtime = runtime
        # What transactions that have not ended are going to register.
        self._pending: WeakKeyDictionary[Transaction, set[tuple[str, str]]] = WeakKeyDictionary()
        self._batches: WeakKeyDictionary[Transaction, _Batch] = WeakKeyDictionary()

    def is_pending(self, txn: Transaction, home: str, name: str) -> bool:
        """Whether a transaction is going to register a job."""
        return (home, fold(name)) in self._pending.get(txn, ())

    def register(self, txn: Transaction, new: NewJob, sources: Sequence[TableInfo]) -> bool:
        """Register a job on some tables with the commit; False if there is one of that name.

        Its `upstream` names only the jobs that it reads from directly.
        """
        if self.is_pending(txn, new.home, new.name):
            return False
        if len({info.id for info in sources}) != len(sources):
            raise InvalidError("a spec's sources name a table twice")
        with self._runtime.database.read() as connection:
            check_retention(connection, new.spec)
            old = joblog.find(connection, self._runtime.tenant, new.home, new.name)
            if old is not None and txn.acts_for(old.id):
                old = None  # this very transaction drops it
            if old is not None and not has_lost_a_source(connection, old.id):
                return False
        if old is not None:  # it can never run again: the new one takes its place
            self.drop(txn, old)
        outputs = self._prepare(txn, new, sources)
        batch = self._batches.get(txn)
        # Those that follow each other are entered at once; else in their turn.
        if batch is None or txn.last_on_commit is not batch:
            batch = self._batches[txn] = _Batch(self._runtime)
            txn.on_commit(batch)
        batch.add(new, sources, [txn.info(output) for output in outputs])
        self._pending.setdefault(txn, set()).add((new.home, fold(new.name)))
        return True

    def _prepare(self, txn: Transaction, new: NewJob, sources: Sequence[TableInfo]) -> list[str]:
        """Let the consumer check the options, and create the tables that the job derives."""
        kind = new.spec.kind
        consumer = find_consumer(kind)
        if consumer is not None:
            return consumer.prepare(txn, new.spec.consumer, sources)
        if is_broken(kind):
            raise InvalidError(why_missing(kind))
        log.warning("consumer not known here", kind=kind, job=new.name)
        return []

    # --- dropping ---------------------------------------------------------------------------

    def drop(self, txn: Transaction, job: JobRecord, *, cascade: bool = False) -> list[int]:
        """Drop a job with the commit, with `cascade` what is downstream first; all their ids."""
        with self._runtime.database.read() as connection:
            downstream = joblog.downstream_of(connection, job.id)
        downstream = [one for one in downstream if not txn.acts_for(one.id)]
        if not cascade:
            _refuse_if_needed(downstream, job.full_name)
        dropped = [*(one.id for one in downstream), job.id] if cascade else [job.id]
        for job_id in dropped:
            self._drop(txn, job_id)
        return dropped

    def _drop(self, txn: Transaction, job_id: int) -> None:
        txn.act_for(job_id)
        with self._runtime.database.read() as connection:
            derived = [
                lookup.table_by_id(connection, table_id, txn.base)
                for table_id in derived_by(connection, [job_id])[job_id]
            ]
        for info in derived:
            if info is not None:
                txn.drop_table(quoted_name(info.schema, info.name))
        name = self._undo(txn, job_id)

        def drop(commit: Commit) -> None:
            connection = commit.connection
            # Again: a downstream job may have been registered meanwhile, even by this transaction.
            _refuse_if_needed(joblog.downstream_of(connection, job_id), name)
            if not joblog.drop(connection, job_id, self._runtime.clock.now()):
                raise ConflictError("another transaction dropped the job")

        txn.on_commit(drop)

    def _undo(self, txn: Transaction, job_id: int) -> str:
        """Let the consumer of a job that is being dropped undo what it did to the sources.

        Returns the job's full name.
        """
        with self._runtime.database.read() as connection:
            job = joblog.record(connection, job_id)
            ids = joblog.sources_of(connection, [job_id])[job_id]
            infos = [lookup.table_by_id(connection, source, txn.base) for source in ids]
        assert job is not None  # its rows stay for long after it was dropped
        consumer = find_consumer(job.kind)
        if consumer is not None:
            there = [info for info in infos if info is not None]
            consumer.dropping(txn, job.spec.consumer, there)
        return job.full_name

    def wait_for_rest(self, job_id: int) -> None:
        """Wait until no living node runs anything for a job."""
        changed = threading.Event()
        end_listening = self._runtime.database.listen(changed.set)
        deadline = time.monotonic() + self._runtime.settings.drop_timeout.total_seconds()
        try:
            while time.monotonic() < deadline:
                changed.clear()
                with self._runtime.database.read() as connection:
                    job = joblog.record(connection, job_id)
                    if job is None or job.node is None:
                        return
                    if job.node not in live_nodes(connection, self._runtime.clock):
                        return
                changed.wait(0.1)
        finally:
            end_listening()
        log.warning("a dropped job's iteration goes on", job_id=job_id)


def check_retention(connection: sa.Connection, spec: JobSpec) -> None:
    """Refuse a retention that is longer than what the lake allows."""
    asked = spec.retention
    if asked is None:
        return
    longest = configuration.read(connection).longest_retention
    if parse_interval(asked) > longest:
        raise InvalidError(
            f"a job of this lake can keep at most {longest} of history, not {asked}: ask for less, "
            "or the lake's owner for lake.configure(longest_retention=…)"
        )


class _Batch:
    """Jobs that a transaction registers one after the other: called inside of its commit."""

    def __init__(self, runtime: TenantRuntime) -> None:
        self._runtime = runtime
        # Each with its sources, and the tables that it derives.
        self._jobs: list[tuple[NewJob, Sequence[TableInfo], Sequence[TableInfo]]] = []

    def add(self, job: NewJob, sources: Sequence[TableInfo], outputs: Sequence[TableInfo]) -> None:
        self._jobs.append((job, sources, outputs))

    def __call__(self, commit: Commit) -> None:
        connection = commit.connection
        self._check_tables(commit)
        names = joblog.names_under(
            connection, self._runtime.tenant, {job.home for job, _, _ in self._jobs}
        )
        rows = []
        for job, read, derived in self._jobs:
            if (job.home, fold(job.name)) in names:
                raise ConflictError(f"another transaction registered {job.full_name}")
            sources = [commit.table_id(table) for table in read]
            outputs = [commit.table_id(table) for table in derived]
            check_no_loop(connection, job.full_name, sources, outputs)
            upstream = self._all_upstream(connection, job, sources)
            new = replace(job, sources=sources, outputs=outputs, upstream=upstream)
            if outputs or upstream:  # the next may read from it, or lead back to it
                self._insert(connection, [new])
            else:
                rows.append(new)
        self._insert(connection, rows)

    def _check_tables(self, commit: Commit) -> None:
        tables = {
            commit.table_id(table): table
            for _, sources, outputs in self._jobs
            for table in (*sources, *outputs)
        }
        there = lookup.tables_there(commit.connection, commit.snapshot, tables)
        for table_id, table in tables.items():
            if table_id not in there:
                raise ConflictError(f"another transaction dropped {table.full_name}")

    def _insert(self, connection: sa.Connection, jobs: list[NewJob]) -> None:
        now = self._runtime.clock.now()
        joblog.insert_all(connection, jobs, tenant=self._runtime.tenant, now=now)

    def _all_upstream(
        self, connection: sa.Connection, new: NewJob, sources: Sequence[int]
    ) -> list[int]:
        """What a new job reads from, directly or not, each behind its own upstream."""
        if not new.upstream:
            return []
        farther = joblog.upstream_of(connection, new.upstream)
        upstream = list(dict.fromkeys(i for d in new.upstream for i in (*farther.get(d, ()), d)))
        there = {
            job.id: job for job, dropped in joblog.jobs_by_id(connection, upstream) if not dropped
        }
        for job_id in upstream:
            job = there.get(job_id)
            if job is None or job.tenant != self._runtime.tenant:
                raise ConflictError(f"a job that {new.full_name} reads from is not there: {job_id}")
            if not set(job.sources) <= set(sources):
                raise InvalidError(
                    f"the sources of {new.full_name} lack some of {job.full_name}, "
                    "which it reads from"
                )
        return upstream


log = get_logger("tailrace.jobs")


def _refuse_if_needed(downstream: Sequence[JobRecord], job: str) -> None:
    if downstream:
        names = ", ".join(one.full_name for one in downstream[:5])
        raise InvalidError(
            f"{job} cannot be dropped while others read from it ({names})",
            fix=Fix(Action.DROP_READERS_FIRST),
        )


def has_lost_a_source(connection: sa.Connection, job_id: int) -> bool:
    """Whether a source of a job is not there any more, so that it can never run again."""
    newest = lookup.newest_snapshot(connection)
    sources = joblog.sources_of(connection, [job_id])[job_id]
    return any(lookup.table_by_id(connection, source, newest) is None for source in sources)


def fail_followers(connection: sa.Connection, tables: Sequence[int], now: datetime) -> None:
    """Tables are being dropped: the jobs that follow them can never run again."""
    followers = [(job, find_consumer(job.kind)) for job in joblog.following(connection, tables)]
    held = [(job.home, one.holds_sources) for job, one in followers if one and one.holds_sources]
    if held:
        names = ", ".join(sorted(home for home, _ in held)[:5])
        raise InvalidError(
            f"a table cannot be dropped while {held[0][1]} read it ({names})",
            fix=Fix(Action.DROP_READERS_FIRST),
        )
    for job, consumer in followers:
        if consumer is not None and consumer.goes_with_source:
            joblog.drop(connection, job.id, now)
            continue
        error = JobError(
            code=retry.SOURCE_GONE, message=retry.source_gone(job.full_name), at=str(now)
        )
        joblog.stop(connection, job.id, state=State.ERROR, last=job.last.with_error(error))
