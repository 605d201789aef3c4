"""A view as users have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa
from sqlglot import exp

from tailrace.arguments import Count, Seconds, checked
from tailrace.errors import (
    Action,
    Fix,
    InvalidError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
)
from tailrace.propagation import history, joblog
from tailrace.propagation import tables as t
from tailrace.propagation.consumer import check_outside
from tailrace.propagation.freshness import Freshness
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Job, JobRecord, State
from tailrace.propagation.jobs import Jobs, home_of
from tailrace.propagation.status import JobStatus
from tailrace.store.compaction import TableHealth
from tailrace.store.names import split_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.table import Table
from tailrace.store.transaction import Transaction
from tailrace.views.definition import STORED_KEY, Definition, define, over_frames, reader_of
from tailrace.views.jobs import VIEW
from tailrace.views.query.parse import moment_text
from tailrace.views.refresh.choose import Strategy
from tailrace.views.refresh.planner import FULL, Explanation, explain
from tailrace.views.refresh.verify import Report, verify
from tailrace.views.resolve import finder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# How often a full refresh waits for others to finish theirs.
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Context:
    """What views need of their lake."""

    runtime: TenantRuntime
    jobs: Jobs
    begin: Callable[[], Transaction]
    run_some: Callable[[Callable[[Job], bool], float | None], None]


@checked
class View:
    """A materialized view, from `lake.create_view(…)` or `lake.view(name)`."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._schema, self._plain = split_name(name)
        self.name = f"{self._schema}.{self._plain}"
        self._home = home_of(name)

    def __repr__(self) -> str:
        return f"<tailrace.View {self.name}>"

    # --- describe ---------------------------------------------------------------------------

    def _job(self) -> JobRecord:
        with self._context.runtime.database.read() as connection:
            job = joblog.find(connection, self._context.runtime.tenant, self._home, VIEW)
        if job is None or job.kind != VIEW:
            raise NotFoundError(f"there is no view {self.name}", fix=Fix(Action.LIST_VIEWS))
        return job

    @property
    def _options(self) -> dict[str, Any]:
        return self._job().spec.consumer

    @property
    def query(self) -> str:
        """The query, with every * spelled out."""
        return str(self._options["query"])

    @property
    def policy(self) -> str:
        """auto, incremental or full."""
        return str(self._options["policy"])

    @property
    def is_checked(self) -> bool:
        """Whether Spark has checked its query: when it was created, if it could, or since."""
        return bool(self._options.get("checked", True)) or self._job().watermark is not None

    @property
    def watermark(self) -> int | None:
        """The snapshot that it reflects; None before it is built."""
        return self.status().watermark

    def status(self) -> JobStatus:
        """Its job's state, watermark and last error."""
        self._job()
        return self._context.jobs.status(self._home, VIEW)

    @property
    def columns(self) -> dict[str, str]:
        """Names and Spark types of the columns."""
        from tailrace.spark_sql.types import spark_type

        table = self._stored().info
        shown = [item.name for item in self._reader().selects]
        return {name: spark_type(table.column(name).type) for name in shown}

    def health(self) -> TableHealth:
        """How the files that it is stored in are: see `lake.maintain`."""
        return self._stored().health()

    def history(self, limit: Count = 100) -> list[Iteration]:
        """Its last refreshes, newest first."""
        return list(self._context.jobs.history(self._home, VIEW, limit=limit))

    # --- read -------------------------------------------------------------------------------

    def _stored(self) -> Table:
        schema, plain = split_name(self._options["table"])
        runtime = self._context.runtime
        newest = runtime.mirror.newest()
        if runtime.mirror.find_table(schema, plain, newest, runtime.tenant) is None:
            raise self._not_built()
        return Table(runtime, schema, plain, begin=self._context.begin)

    def _not_built(self) -> InvalidError:
        fix = Fix(Action.BUILD_VIEW, self.name)
        return InvalidError(f"the view {self.name} has not been built", fix=fix)

    def _reader(self) -> exp.Select:
        definition = self._definition()
        return reader_of(definition, [c.name for c in self._stored().info.columns])

    def reading(self) -> tuple[str, exp.Select]:
        """The stored table's name, and the query that shows its rows, for other readers."""
        return str(self._options["table"]), self._reader()

    def to_df(self, at: int | None = None) -> DataFrame:
        """Its rows as a Spark DataFrame; at a snapshot, as they were then."""
        stored = self._stored().to_df(at)
        return over_frames(self._context.runtime.spark(), self._reader(), {STORED_KEY: stored})

    def to_arrow(self, at: int | None = None) -> pa.Table:
        """Its rows as an Arrow table. A small one without a LIMIT is read without Spark."""
        reader = self._reader()
        if reader.args.get("limit") or reader.args.get("offset"):
            return self.to_df(at).toArrow()
        rows = self._stored().to_arrow(at)
        where = reader.args.get("where")
        if where is not None:
            rows = rows.filter(rows.column(where.this.name))
        return rows.select([item.name for item in reader.selects])

    # --- keep fresh -------------------------------------------------------------------------

    def refresh(self, timeout: Seconds | None = None, *, full: bool = False) -> Iteration:
        """Bring it to the newest snapshot, here and now; returns what was done.

        With `full`, recompute all of it, whatever its policy and even if no source has changed.
        """
        check_outside("view.refresh()")
        job = self._job()
        if full:
            job = self._ask_for_all(job, timeout)
        else:
            done = self._nothing_to_do(job)
            if done is not None:
                return done
            self._move_with_time(job)
        if job.state == State.ERROR:
            # It waits for somebody to act, which this is. What it failed at may be gone by now.
            self._context.jobs.resume(self._home, VIEW)
        before = self._last_iteration(job.id)
        self._run(job, timeout)
        job = self._job()
        if job.state in (State.PAUSED, State.CANCELED):
            raise self._stopped(job)
        done = self._last_iteration(job.id)
        if done is None or done == before:
            return self._not_run(job)
        return done

    def _stopped(self, job: JobRecord) -> InvalidError:
        fix = Fix(Action.RESUME_VIEW, self.name, VIEW)
        return InvalidError(f"the view {self.name} is {job.state}", fix=fix)

    def _last_iteration(self, job_id: int) -> Iteration | None:
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            iterations = history.iterations(
                connection, runtime.tenant, home=None, job_id=job_id, limit=1
            )
        return iterations[0] if iterations else None

    def _not_run(self, job: JobRecord) -> Iteration:
        """The result of a refresh that did nothing: another may have done it just before."""
        status = self.status()
        if status.is_fresh:
            return self._unchanged(job, status.watermark)
        reason = status.error or status.note or "it could not run"
        raise JobFailedError(f"the view {self.name} was not refreshed: {reason}")

    def _run(self, job: JobRecord, timeout: float | None) -> None:
        """Run its job, and those upstream, until they are fresh."""
        with self._context.runtime.database.read() as connection:
            wanted = {job.id, *joblog.upstream_of(connection, [job.id]).get(job.id, ())}
        self._context.run_some(
            lambda job: job.id in wanted or (job.kind == VIEW and job.home == self._home), timeout
        )

    def _ask_for_all(self, job: JobRecord, timeout: float | None) -> JobRecord:
        """Note that the next run recomputes all of it, after waiting for the present one."""
        for _ in range(_TRIES):
            if job.state in (State.PAUSED, State.CANCELED):
                raise self._stopped(job)
            last = replaced(job.last, memory={**job.last.memory, FULL: True})
            # An iteration that failed need not be tried again: this one takes its place.
            if self._make_stale(job, last=last, claim_to=None, epoch=job.epoch + 1):
                return job
            self._run(job, timeout)
            job = self._job()
        raise UnavailableError(f"the view {self.name} keeps being refreshed: try later")

    def _move_with_time(self, job: JobRecord) -> None:
        """Make all of it stale if a function of time has another value by now."""
        known = job.last.memory.get("moment")
        moments = tuple(job.spec.consumer.get("moment", ()))
        now = self._context.runtime.clock.now()
        if known and known != moment_text(moments, now) and job.claim_to is None:
            self._make_stale(job)

    def _make_stale(self, job: JobRecord, **values: Any) -> bool:
        """Forget what it reflects, unless it is running."""
        c = t.job.c
        # The epoch would not do: a run that has ended since changed the row, but not the epoch.
        conditions = (c.node_id.is_(None), c.lsn == job.lsn)
        with self._context.runtime.database.lock() as connection:
            lsn = joblog.write(connection, job.id, *conditions, watermark=None, **values)
        return lsn is not None

    def _nothing_to_do(self, job: JobRecord) -> Iteration | None:
        """An iteration that was not run, if no source has changed since the watermark."""
        runtime = self._context.runtime
        if job.watermark is None or job.claim_to is not None or not job.is_at_rest:
            return None
        with runtime.database.read() as connection:
            waiting = built_beside(connection, job)
            freshness = Freshness(connection, [job])
        if waiting or "moment" in job.spec.consumer or not freshness.is_fresh(job):
            return None
        return self._unchanged(job, freshness.newest)

    def _unchanged(self, job: JobRecord, newest: int | None) -> Iteration:
        runtime = self._context.runtime
        now = runtime.clock.now()
        assert newest is not None
        return Iteration(
            job_id=job.id,
            tenant=runtime.tenant,
            sources=(),
            from_snapshot=job.watermark,
            to_snapshot=newest,
            kind="tail",
            node_id="",
            started_at=now,
            ended_at=now,
            seconds=0.0,
            strategy=str(Strategy.NOTHING),
        )

    # --- look inside ------------------------------------------------------------------------

    def _definition(self) -> Definition:
        return define_now(self._context, self.query)

    def explain(self) -> Explanation:
        """How the next refresh will work, and why not in a cheaper way."""
        job = self._job()
        options = job.spec.consumer
        definition = define_now(self._context, options["query"])
        memory, stored = job.last.memory, None
        if "types" in memory:
            with self._context.begin() as txn:
                stored = txn.info(options["table"]).columns
        return explain(
            self._context.runtime,
            self.name,
            definition,
            policy=options["policy"],
            watermark=job.watermark,
            memory=memory,
            stored=stored,
        )

    def verify(self) -> Report:
        """Compare its rows with a recompute of its query at its watermark."""
        job = self._job()
        if job.watermark is None:
            raise self._not_built()
        return verify(self._context.runtime, job)


def built_beside(connection: sa.Connection, view: JobRecord) -> list[JobRecord]:
    """The jobs that build a replacement of a view."""
    c = t.job.c
    same_name = (c.tenant == view.tenant, c.home == view.home)
    return joblog.records(connection, *same_name, c.kind == VIEW, c.job_id != view.id)


def define_now(context: Context, query: str) -> Definition:
    """A query over tables and views as they are now."""
    with context.begin() as txn:
        return define(query, finder(txn, {}), context.runtime.clock.now())
