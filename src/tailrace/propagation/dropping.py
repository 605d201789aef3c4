"""Dropping jobs, and what becomes of them when their sources are dropped.

Always true: from the commit that drops a job on, nothing is written for it. A job that others read
from is only dropped together with them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from tailrace.errors import ConflictError, InvalidError
from tailrace.fixes import Action, Fix
from tailrace.log import get_logger
from tailrace.propagation import joblog, retry
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.job import JobError, JobRecord, State
from tailrace.propagation.node import live_nodes
from tailrace.store import lookup
from tailrace.store.names import quoted_name
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Transaction
from tailrace.store.workspace import Commit

log = get_logger("tailrace.jobs")


class Dropping:
    """Drops jobs as parts of transactions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

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
                for table_id in joblog.derived_by(connection, [job_id])[job_id]
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
