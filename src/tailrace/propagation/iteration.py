"""One iteration: claim the jobs, read their sources once, run and commit each bundle of them.

Always true: a job that fails leaves its siblings alone. What was claimed and not committed stays
claimed, so that the next try ends at the same snapshot, unless the consumer needs no such promise.
How jobs run and commit is in `bundle`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from random import Random

import sqlalchemy as sa

from tailrace.catalog.configuration import own_metadata
from tailrace.catalog.database import Together
from tailrace.errors import UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import claims, history, retry
from tailrace.propagation.bundle import Bundle, Part, StoppedError
from tailrace.propagation.changes import SharedReads
from tailrace.propagation.claims import FencedError
from tailrace.propagation.consumer import find_consumer, why_missing
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Claim, Job, JobError, RunKind
from tailrace.propagation.scheduler import Execution, Turn
from tailrace.propagation.spark_tags import TaggingSpark
from tailrace.store.counters import COUNT
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Heartbeat

log = get_logger("tailrace.iteration")

# So many jobs share a commit at most; and after so many seconds it waits for no other.
_SHARING, _PATIENCE = 16, 0.25


class Iterations:
    """Runs the iterations of a node."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        node_id: str,
        *,
        live: Callable[[sa.Connection], set[str]],
        random: Random | None = None,
        observe: Callable[[Job, Iteration], None] = lambda _job, _done: None,
        may_begin: Callable[[int], bool] = lambda _job: True,
        blame: Callable[[Job], str | None] = lambda _job: None,
        leaves: Callable[[BaseException, Job], bool] = lambda _error, _job: False,
        waits_for_spark: bool = False,
    ) -> None:
        """`blame` tells what is wrong with the node if a failure is not the job's; `leaves` whether
        a failure is not counted because another node may succeed.
        """
        self._may_begin, self._blame, self._leaves = may_begin, blame, leaves
        # The Spark jobs of an execution are tagged, so that they can be interrupted.
        self._spark = TaggingSpark(runtime.spark)
        self._spark.waits = waits_for_spark
        self._runtime, self._heartbeat = replace(runtime, spark=self._spark), heartbeat
        self._node_id, self._live = node_id, live
        self._random = random or Random()  # noqa: S311  (pauses, no secrets)
        self._observe = observe
        self.shared_reads = SharedReads(self._runtime)
        self._lake: str | None = None

    def run(self, execution: Execution) -> None:
        """Run a work. The failure of a job is entered with the job, and not raised."""
        work = execution.work
        if not all(self._may_begin(job) for job in work.jobs):
            return  # the node stands back since it was planned
        with self._runtime.database.lock() as connection:
            claimed = claims.claim(connection, work, node=self._node_id, live=self._live)
        execution.claims = {claim.job.id: claim for claim in claimed}
        self._runtime.step("claimed")
        if not claimed:
            return
        parts: dict[int, Part] = {}
        try:
            self._prepare(execution, parts)
            bundles = [
                [parts[job] for job in bundle]
                for bundle in work.bundles()
                if all(job in parts for job in bundle)  # or none of it runs
            ]
            self._run_bundles(execution, bundles)
        finally:
            for part in parts.values():
                for read in part.reads.values():
                    self.shared_reads.release(read)
            self._release(execution)

    # --- before -----------------------------------------------------------------------------

    def _prepare(self, execution: Execution, parts: dict[int, Part]) -> None:
        """For all jobs, look up sources and consumers, and ask for the columns to be read."""
        work = execution.work
        claimed = list(execution.claims.values())
        mirror = self._runtime.mirror
        execution.base = mirror.newest()
        # Where the change feed doesn't reach back to the watermark, the job is rebuilt.
        infos = {s: mirror.table_by_id(s, work.to) for s in work.sources}
        kinds = {
            since: RunKind.TAIL if since is not None and mirror.has(since) else RunKind.SNAPSHOT
            for since in {claim.since for claim in claimed}
        }
        for claim in claimed:
            if claim.since is not None and kinds[claim.since] is RunKind.SNAPSHOT:
                log.warning(
                    "history purged: rebuilding", job=claim.job.full_name, watermark=claim.since
                )
        execution.names = {s: info.full_name for s, info in infos.items() if info is not None}
        for claim in claimed:
            kind = kinds[claim.since]
            try:
                part = self._part(claim, infos, kind)
            except Exception as error:  # noqa: BLE001  (a consumer's own code may raise anything)
                self._fail(execution, claim, error, kind, None)
                continue
            parts[claim.job.id] = part
            since = None if kind is RunKind.SNAPSHOT else claim.since
            for table, columns in part.columns.items():
                part.reads[table] = self.shared_reads.acquire((table, since, work.to), columns)

    def _part(self, claim: Claim, infos: Mapping[int, TableInfo | None], kind: RunKind) -> Part:
        consumer = find_consumer(claim.job.kind)
        if consumer is None:
            raise UnavailableError(f"{why_missing(claim.job.kind)} on this node")
        columns: dict[int, list[str] | None] = {}
        for table in claim.job.sources:
            info = infos[table]
            if info is None:
                raise retry.SourceGoneError(retry.source_gone(claim.job.full_name))
            wanted = consumer.columns(claim.spec.consumer, claim.last.memory, info)
            for name in wanted or ():
                info.column(name)  # a wrong name must not fail the read that others share
            columns[table] = wanted
        return Part(claim=claim, consumer=consumer, kind=kind, columns=columns)

    # --- running ----------------------------------------------------------------------------

    def _run_bundles(self, execution: Execution, bundles: list[list[Part]]) -> None:
        """The first bundle alone, so that what it reads is there for the others.

        These run several at once, unless the changes are small: then Python does the work, and
        threads would only get in each other's way.
        """
        for bundle in bundles[:1]:
            self._run_bundle(execution, bundle)
        rest = bundles[1:]
        reads = [read for bundle in rest for part in bundle for read in part.reads.values()]
        if len(rest) > 1 and not all(read.is_small for read in reads):
            workers = min(len(rest), self._runtime.settings.sibling_workers)
            with ThreadPoolExecutor(workers, thread_name_prefix="tailrace-sibling") as pool:
                list(pool.map(lambda bundle: self._run_bundle(execution, bundle), rest))
        else:
            for may_share, some in groupby(rest, _may_share_commits):
                if may_share:
                    self._run_sharing(execution, [part for (part,) in some])
                else:
                    for bundle in some:
                        self._run_bundle(execution, bundle)

    def _run_sharing(self, execution: Execution, parts: list[Part]) -> None:
        """Run jobs that have little to do, several in one commit.

        If that fails, for whatever reason, each of them runs by itself: no job suffers by another.
        """
        while parts:
            some = parts[:_SHARING]
            done = self._share(execution, some) if len(some) > 1 else 0
            if not done:
                for part in some:
                    self._run_bundle(execution, [part])
            parts = parts[done or len(some) :]

    def _share(self, execution: Execution, parts: list[Part]) -> int:
        """Commit as many as take little time together; returns how many. 0: that failed."""
        jobs = tuple(part.id for part in parts)
        if execution.must_stop(jobs):
            return 0
        bundle = Bundle(
            self._runtime, self._heartbeat, self._spark, execution, parts, patience=_PATIENCE
        )
        try:
            records = bundle.run(self._lake_id)
        except BaseException as error:  # noqa: BLE001  (whose fault it is shows when each runs alone)
            log.info("a shared commit failed", jobs=jobs, error=repr(error)[:500])
            return 0
        finally:
            del execution.turns[jobs]
        self._committed(execution, parts, records)
        return len(records)

    def _run_bundle(self, execution: Execution, parts: list[Part]) -> None:
        """Run one job, or several that commit together.

        A failure is entered with the job whose turn it was; the others of a bundle are at rest
        again as if nothing had been. A commit that fails is the last one's: its upstream goes on
        without it.
        """
        jobs = tuple(part.id for part in parts)
        if execution.must_stop(jobs):
            return
        bundle = Bundle(self._runtime, self._heartbeat, self._spark, execution, parts)
        try:
            records = bundle.run(self._lake_id)
        except BaseException as error:  # noqa: BLE001  (a consumer may raise anything, and exit)
            # If it was stopped, whoever stopped it has said why.
            if not isinstance(error, FencedError | StoppedError) and not execution.must_stop(jobs):
                self._fail(execution, bundle.part.claim, error, bundle.part.kind, bundle.turn)
            return
        finally:
            del execution.turns[jobs]
        self._committed(execution, parts, records)

    def _committed(self, execution: Execution, parts: list[Part], records: list[Iteration]) -> None:
        self._runtime.step("job committed")
        for part, record in zip(parts, records, strict=False):  # the first of them, if they shared
            execution.claims.pop(part.id, None)
            self._report(part.claim.job, record)

    def _lake_id(self) -> str:
        if self._lake is None:
            c = own_metadata.c
            query = sa.select(c.value).where(c.key == "lake_id")
            with self._runtime.database.read() as connection:
                self._lake = str(connection.execute(query).scalar_one())
        return self._lake

    def stop(self, execution: Execution) -> None:
        """Interrupt what an execution does and must not; its threads find out then."""
        for tag in execution.stragglers():
            self._spark.interrupt(tag)

    # --- after ------------------------------------------------------------------------------

    def _fail(
        self,
        execution: Execution,
        claim: Claim,
        error: BaseException,
        kind: RunKind,
        turn: Turn | None,
        *,
        is_late: bool = False,
    ) -> None:
        """Enter a failure with its job and in the history, unless it is this node's own."""
        # After a time-out the node is not checked: Spark may be what does not answer.
        reason = None if is_late else self._blame(claim.job)
        if reason is not None:
            execution.failures += 1
            log.warning("iteration", job=claim.job.full_name, error=reason, blamed="this node")
            return  # what it claimed is released, and another node may take it
        before = claim.last.error
        was_trigger = before is not None and before.code == retry.TRIGGER
        tries = 1 if was_trigger else claim.job.tries + 1
        settings = self._runtime.settings
        code = retry.final_code(retry.code_of(error), tries, settings)
        permanent = retry.is_permanent(code)
        now = self._runtime.clock.now()
        again: datetime | None = now + retry.pause(tries, settings, self._random, error)
        if self._leaves(error, claim.job):  # reported, but not counted
            tries, permanent, again = max(1, claim.job.tries), False, None
        message = retry.message_of(error)
        record = replace(execution.record(claim, kind, turn, now), error=message)
        with self._runtime.database.lock() as connection:
            entered = claims.fail(
                connection,
                claim,
                permanent=permanent,
                tries=tries,
                retry_at=None if permanent else again,
                error=JobError(code=code, message=message, at=str(now)),
                repeats=_repeats(claim.job),
            )
            if entered:
                statements = Together(connection)
                statements.later(COUNT, {"which": ["iteration"], "many": 1})
                history.record(statements, record)
                statements.flush()
        execution.claims.pop(claim.job.id, None)
        if entered:
            execution.failures += 1
            self._report(claim.job, record)

    def time_out(self, execution: Execution) -> None:
        """Stop an execution in which a job took too long: nothing of it can commit any more."""
        late = execution.late()
        execution.stopped.set()
        self.stop(execution)
        for turn in late:
            claim = execution.claims.get(turn.job)
            if claim is not None:
                kind = RunKind.SNAPSHOT if claim.since is None else RunKind.TAIL
                limit = claim.job.timeout or self._runtime.settings.iteration_timeout.seconds
                error = TimeoutError(f"the iteration took longer than {limit:g} seconds")
                self._fail(execution, claim, error, kind, turn, is_late=True)
        self._release(execution)

    def abandon(self, execution: Execution) -> None:
        """Stop an execution that can't go on, and release its jobs without blaming them."""
        execution.stopped.set()
        self._release(execution)

    def _release(self, execution: Execution) -> None:
        """Release the jobs whose outcome was not entered."""
        left, execution.claims = execution.claims, {}
        if left:
            with self._runtime.database.lock() as connection:
                for claim in left.values():
                    job = claim.job
                    claims.release(connection, job.id, self._node_id, repeats=_repeats(job))

    def _report(self, job: Job, done: Iteration) -> None:
        fields = {
            "job": job.full_name,
            "job_id": job.id,
            "kind": done.kind,
            "from_snapshot": done.from_snapshot,
            "to_snapshot": done.to_snapshot,
            "seconds": round(done.seconds, 3),
            "rows_read": done.rows_read,
            "rows_written": done.rows_written,
        }
        if done.error is None:
            log.info("iteration", **fields)
        else:
            log.warning("iteration", error=done.error, **fields)
        self._observe(job, done)


def _may_share_commits(bundle: list[Part]) -> bool:
    """Whether it is a job of which another try is cheap, and leaves no trace."""
    return len(bundle) == 1 and bundle[0].consumer.shares_commits and bundle[0].kind is RunKind.TAIL


def _repeats(job: Job) -> bool:
    """Whether what was begun has to end where it was going to."""
    consumer = find_consumer(job.kind)
    return consumer is None or consumer.repeats_ranges
