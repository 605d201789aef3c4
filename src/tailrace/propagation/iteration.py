"""One iteration: claim the jobs, read their sources once, run each consumer, commit each.

Always true: a job's output, its watermark, what its consumer remembers and its history are one
commit, which fails if the job is no longer as it was claimed. A job that fails leaves its
siblings alone. What was claimed and not committed stays claimed, so that the next try ends at the
same snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.errors import NotFoundError, TailraceError, UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import graph, history, joblog, retry
from tailrace.propagation.changes import Changes, SourceChanges
from tailrace.propagation.consumer import Consumer, JobContext, find_consumer
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Claim, Job, Kind, Work
from tailrace.propagation.joblog import FencedError
from tailrace.propagation.reading import Reading, Readings
from tailrace.propagation.spark_tags import TaggingSpark
from tailrace.store import lookup
from tailrace.store.heartbeat import Heartbeat
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo, quoted_name
from tailrace.store.transaction import Transaction

log = get_logger("tailrace.iteration")


class StoppedError(TailraceError):
    """An iteration was told to stop."""


@dataclass
class Flight:
    """A work that is running, as those see it who may have to stop it."""

    work: Work
    stopped: threading.Event = field(default_factory=threading.Event)
    fenced: set[int] = field(default_factory=set)  # jobs that must not go on
    current: tuple[int, ...] = ()  # the jobs that run at this moment
    claims: dict[int, Claim] = field(default_factory=dict)
    tag: str = ""  # of the Spark jobs of the moment

    def must_stop(self, jobs: tuple[int, ...]) -> bool:
        return self.stopped.is_set() or not self.fenced.isdisjoint(jobs)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One job of an iteration, with what it reads."""

    claim: Claim
    consumer: Consumer
    kind: Kind
    columns: dict[int, list[str] | None]  # by source
    readings: dict[int, Reading] = field(default_factory=dict)


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
    ) -> None:
        # The Spark jobs of a flight are tagged, so that they can be interrupted.
        self._spark = TaggingSpark(runtime.spark)
        self._runtime, self._heartbeat = replace(runtime, spark=self._spark), heartbeat
        self._node_id, self._live = node_id, live
        self._random = random or Random()  # noqa: S311  (pauses, no secrets)
        self._observe = observe
        self.readings = Readings(self._runtime)

    def run(self, flight: Flight) -> None:
        """Run a work; what goes wrong with a job is entered with the job, and not raised."""
        work = flight.work
        with self._runtime.database.lock() as connection:
            claims = joblog.claim(connection, work, node=self._node_id, live=self._live)
        flight.claims = {claim.job.id: claim for claim in claims}
        self._runtime.step("claimed")
        if not claims:
            return
        parts: dict[int, _Part] = {}
        try:
            self._prepare(flight, parts)
            for bundle in work.bundles():
                todo = [parts[job] for job in bundle if job in parts]
                if len(todo) == len(bundle):  # what commits together stays behind together
                    self._run_bundle(flight, todo)
        finally:
            for part in parts.values():
                for reading in part.readings.values():
                    self.readings.release(reading)
            self._release(flight)

    # --- before -----------------------------------------------------------------------------

    def _prepare(self, flight: Flight, parts: dict[int, _Part]) -> None:
        """Look up sources and consumers, and say which columns will be read, for all jobs."""
        work = flight.work
        with self._runtime.database.read() as connection:
            infos = {
                table: lookup.table_by_id(connection, table, work.to) for table in work.sources
            }
            kind = Kind.TAIL if _has_history(connection, work.since) else Kind.SNAPSHOT
        since = None if kind is Kind.SNAPSHOT else work.since
        for claim in flight.claims.values():
            try:
                part = self._part(claim, infos, kind)
            except Exception as error:  # noqa: BLE001  (a consumer's own code may raise anything)
                self._fail(flight, claim, error, started=self._runtime.clock.now(), seconds=0)
                continue
            parts[claim.job.id] = part
            for table, columns in part.columns.items():
                part.readings[table] = self.readings.announce((table, since, work.to), columns)

    def _part(self, claim: Claim, infos: Mapping[int, TableInfo | None], kind: Kind) -> _Part:
        consumer = find_consumer(claim.job.kind)
        if consumer is None:
            raise UnavailableError(f"no consumer {claim.job.kind!r} is known on this node")
        columns: dict[int, list[str] | None] = {}
        for table in claim.job.sources:
            info = infos[table]
            if info is None:
                raise NotFoundError(source_gone(claim.job.label))
            memory = claim.status.get("memory", {})
            wanted = consumer.columns(claim.spec["consumer"], memory, info)
            for name in wanted or ():
                info.column(name)  # its own mistake must not fail the others' read
            columns[table] = wanted
        return _Part(claim=claim, consumer=consumer, kind=kind, columns=columns)

    # --- one job, or several that commit together -------------------------------------------

    def _run_bundle(self, flight: Flight, parts: list[_Part]) -> None:
        jobs = tuple(part.claim.job.id for part in parts)
        if flight.must_stop(jobs):
            return
        flight.current = jobs
        started, clock = self._runtime.clock.now(), time.perf_counter()
        txn: Transaction | None = None

        def check() -> None:
            if flight.must_stop(jobs):
                raise StoppedError("this iteration was stopped")

        # As the jobs' own tenant sees the lake.
        runtime = replace(self._runtime, tenant=parts[0].claim.job.tenant)
        try:
            flight.tag = f"tailrace-{self._node_id}-{'-'.join(map(str, jobs))}-{flight.work.to}"
            with self._spark.tagged(flight.tag):
                txn = Transaction(runtime, self._heartbeat, check=check)
                for part in parts:
                    txn.act_for(part.claim.job.id)
                done = [self._consume(flight, part, txn, runtime) for part in parts]
                self._runtime.step("consumed")
                records = self._commit(txn, done, started, clock)
        except BaseException as error:
            if txn is not None:
                txn.rollback()
            self._failed(flight, parts, error, started, time.perf_counter() - clock)
            if not isinstance(error, Exception):
                raise
            return
        finally:
            flight.current = ()
        self._runtime.step("job committed")
        for part, record in zip(parts, records, strict=True):
            flight.claims.pop(part.claim.job.id, None)
            self._report(part.claim.job, record)

    def _consume(
        self, flight: Flight, part: _Part, txn: Transaction, runtime: Runtime
    ) -> tuple[_Part, JobContext, str | None]:
        claim = part.claim
        sources = {}
        for table, reading in part.readings.items():
            source = SourceChanges(runtime, reading, part.columns[table])
            sources[quoted_name(source.info.schema, source.info.name)] = source
        since = None if part.kind is Kind.SNAPSHOT else claim.since
        job = JobContext(
            id=claim.job.id,
            name=claim.job.name,
            table=claim.job.home,
            tenant=claim.job.tenant,
            options=claim.spec["consumer"],
            since=claim.since,
            to=claim.to,
            memory=dict(claim.status.get("memory", {})),
            is_canceled=lambda: flight.must_stop((claim.job.id,)),
        )
        strategy = part.consumer.run(Changes(part.kind, since, claim.to, sources), txn, job)
        return part, job, strategy

    def _commit(
        self,
        txn: Transaction,
        done: list[tuple[_Part, JobContext, str | None]],
        started: datetime,
        clock: float,
    ) -> list[Iteration]:
        written = txn.written()
        records: list[Iteration] = []

        def also(connection: sa.Connection, snapshot: int) -> None:
            records.clear()  # a commit may need several rounds
            for number, (part, job, strategy) in enumerate(done):
                self._enter_outputs(connection, part.claim, written, snapshot)
                status = {**part.claim.status, "memory": job.memory}
                status.pop("error", None)
                joblog.complete(connection, part.claim, status)
                # What a bundle writes is counted once.
                sizes = written if number == 0 else []
                records.append(
                    Iteration(
                        **self._facts(part.claim, part, started),
                        strategy=strategy,
                        seconds=time.perf_counter() - clock,
                        rows_read=sum(r.rows for r in part.readings.values()),
                        bytes_read=sum(r.bytes for r in part.readings.values()),
                        rows_written=sum(rows for _, rows, _ in sizes),
                        bytes_written=sum(size for _, _, size in sizes),
                    )
                )
                history.record(connection, records[-1])

        txn.in_commit(also)
        txn.commit()
        return records

    def _enter_outputs(
        self,
        connection: sa.Connection,
        claim: Claim,
        written: list[tuple[TableInfo, int, int]],
        snapshot: int,
    ) -> None:
        """Note which tables the job writes to; the first time, see that it does not feed itself."""
        touched = set()
        for info, _, _ in written:
            if info.id < 0:  # created by this very commit
                table = lookup.find_table(connection, info.schema, info.name, snapshot)
                assert table is not None
                touched.add(table.id)
            elif info.derived_by is None:
                touched.add(info.id)
        if not touched:
            return
        new = touched - set(joblog.outputs_of(connection, claim.job.id, owned=False))
        if new:
            graph.check_no_loop(connection, claim.job.label, claim.job.sources, new)
            joblog.add_outputs(connection, claim.job.id, sorted(new), owned=False)

    def _facts(self, claim: Claim, part: _Part | None, started: datetime) -> dict[str, Any]:
        readings = part.readings if part is not None else {}
        kind = part.kind if part else (Kind.SNAPSHOT if claim.since is None else Kind.TAIL)
        return {
            "job_id": claim.job.id,
            "tenant": claim.job.tenant,
            "sources": tuple(reading.info.full_name for reading in readings.values()),
            "from_snapshot": claim.since,
            "to_snapshot": claim.to,
            "kind": str(kind),
            "node_id": self._node_id,
            "started_at": started,
            "ended_at": self._runtime.clock.now(),
        }

    def stop(self, flight: Flight) -> None:
        """Interrupt what a flight does at this moment; its thread then finds out."""
        self._spark.interrupt(flight.tag)

    # --- after ------------------------------------------------------------------------------

    def _failed(
        self,
        flight: Flight,
        parts: list[_Part],
        error: BaseException,
        started: datetime,
        seconds: float,
    ) -> None:
        jobs = tuple(part.claim.job.id for part in parts)
        if isinstance(error, FencedError | StoppedError) or flight.must_stop(jobs):
            return  # not its own fault: whoever stopped it has said why
        if isinstance(error, Exception):
            for part in parts:
                self._fail(flight, part.claim, error, started, seconds, part)

    def _fail(
        self,
        flight: Flight,
        claim: Claim,
        error: BaseException,
        started: datetime,
        seconds: float,
        part: _Part | None = None,
    ) -> None:
        """Enter a failure with its job and in the history."""
        tries = claim.job.tries + 1
        settings = self._runtime.settings
        code = retry.final_code(retry.code_of(error), tries, settings)
        message = f"{type(error).__name__}: {error}".strip()[:4000]
        permanent = retry.is_permanent(code)
        now = self._runtime.clock.now()
        record = Iteration(
            **{**self._facts(claim, None, started), "kind": str(part.kind if part else "tail")},
            strategy=None,
            seconds=seconds,
            error=message,
        )
        status = {**claim.status, "error": {"code": code, "message": message, "at": str(now)}}
        with self._runtime.database.lock() as connection:
            entered = joblog.fail(
                connection,
                claim,
                permanent=permanent,
                tries=tries,
                retry_at=None if permanent else now + retry.pause(tries, settings, self._random),
                status=status,
            )
            if entered:
                history.record(connection, record)
        flight.claims.pop(claim.job.id, None)
        if entered:
            self._report(claim.job, record)

    def time_out(self, flight: Flight) -> None:
        """Stop a flight that took too long: what it does can no longer commit."""
        flight.stopped.set()
        error = TimeoutError(f"the iteration took longer than {flight.work.timeout} seconds")
        for job in flight.current:
            claim = flight.claims.get(job)
            if claim is not None:
                self._fail(flight, claim, error, self._runtime.clock.now(), 0)
        self._release(flight)
        self.stop(flight)

    def _release(self, flight: Flight) -> None:
        """Say that this node runs nothing of this work any more."""
        left = [claim.job.id for claim in flight.claims.values()]
        flight.claims = {}
        if left:
            with self._runtime.database.lock() as connection:
                for job in left:
                    joblog.release(connection, job, self._node_id)

    def _report(self, job: Job, done: Iteration) -> None:
        fields = {
            "job": job.label,
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


def _has_history(connection: sa.Connection, since: int | None) -> bool:
    """Whether the change feed reaches back to a watermark; if not, the job is rebuilt."""
    if since is None:
        return False
    query = sa.select(t.snapshot.c.snapshot_id).where(t.snapshot.c.snapshot_id == since)
    return connection.execute(query).first() is not None


def source_gone(label: str) -> str:
    """What a job whose source was dropped is told."""
    return (
        f"a source of {label} was dropped, or replaced by another table of the same name: "
        "register the job again"
    )
