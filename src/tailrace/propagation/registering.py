"""Entering new jobs in the job log, many at once: inside a commit, while everybody waits for it.

Always true: tables are looked up by name, because a table of this very commit has had no id before;
a job whose name or table another transaction took meanwhile fails the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from tailrace.errors import ConflictError, InvalidError
from tailrace.propagation import graph, joblog
from tailrace.propagation.job import NewJob
from tailrace.store import lookup
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo, fold, split_name


class Registering:
    """The jobs that a transaction registers one after the other: called inside of its commit."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Each with its sources, and the names of the tables that it derives.
        self._jobs: list[tuple[NewJob, Sequence[TableInfo], Sequence[str]]] = []

    def add(self, job: NewJob, sources: Sequence[TableInfo], outputs: Sequence[str]) -> None:
        """Register a job, whose `upstream` names only what it reads from directly."""
        self._jobs.append((job, sources, outputs))

    def __call__(self, connection: sa.Connection, snapshot: int) -> None:
        known: dict[tuple[str, str], int] = {}

        def table_id(schema: str, plain: str, wanted: int = -1) -> int:
            found = known.get((schema, plain))
            if found is None:
                tenant = self._runtime.tenant
                info = lookup.find_table(connection, schema, plain, snapshot, tenant)
                if info is None:
                    raise ConflictError(f"another transaction dropped {schema}.{plain}")
                found = known[schema, plain] = info.id
            if wanted not in (-1, found):
                raise ConflictError(f"another transaction dropped {schema}.{plain}")
            return found

        names = joblog.names_under(
            connection, self._runtime.tenant, {job.home for job, _, _ in self._jobs}
        )
        rows = []
        for job, infos, tables in self._jobs:
            if (job.home, fold(job.name)) in names:
                raise ConflictError(f"another transaction registered {job.label}")
            sources = [table_id(i.schema, i.name, max(i.id, -1)) for i in infos]
            outputs = [table_id(*split_name(output)) for output in tables]
            graph.check_no_loop(connection, job.label, sources, outputs)
            upstream = self._all_upstream(connection, job, sources)
            new = replace(job, sources=sources, outputs=outputs, upstream=upstream)
            if outputs or upstream:  # the next may read from it, or lead back to it
                self._insert(connection, [new])
            else:
                rows.append(new)
        self._insert(connection, rows)

    def _insert(self, connection: sa.Connection, jobs: list[NewJob]) -> None:
        now = self._runtime.clock.now()
        joblog.insert_all(connection, jobs, tenant=self._runtime.tenant, now=now)

    def _all_upstream(
        self, connection: sa.Connection, new: NewJob, sources: Sequence[int]
    ) -> list[int]:
        """What a new job stands on, near and far, each behind what it stands on itself."""
        if not new.upstream:
            return []
        beneath = joblog.upstream_of(connection, new.upstream)
        found = list(dict.fromkeys(i for d in new.upstream for i in (*beneath.get(d, ()), d)))
        there = {
            job.id: job for job, dropped in joblog.jobs_by_id(connection, found) if not dropped
        }
        for job_id in found:
            job = there.get(job_id)
            if job is None or job.tenant != self._runtime.tenant:
                raise ConflictError(f"a job that {new.label} stands on is not there: {job_id}")
            if not set(job.sources) <= set(sources):
                raise InvalidError(
                    f"the sources of {new.label} lack some of {job.label}'s beneath it"
                )
        return found
