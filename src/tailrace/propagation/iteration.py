"""One iteration: claim the jobs, read their sources once, run each consumer, commit each.

Always true: a job's output, its watermark, what its consumer remembers and its history are one
commit, which fails if the job is no longer as it was claimed. A job that fails leaves its
siblings alone. Jobs that stand on each other are a bundle: they run one after the other in one
transaction, and the failure of one is entered with that one. What was claimed and not committed
stays claimed, so that the next try ends at the same snapshot, unless the consumer needs no such
promise.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

import sqlalchemy as sa

from tailrace.errors import InvalidError, NotFoundError, TailraceError, UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import claiming, graph, history, joblog, retry, versions
from tailrace.propagation.changes import Changes, SourceChanges
from tailrace.propagation.claiming import FencedError
from tailrace.propagation.consumer import Consumer, JobContext, find_consumer, why_missing
from tailrace.propagation.flight import Flight, Running
from tailrace.propagation.history import Iteration
from tailrace.propagation.inside import consuming
from tailrace.propagation.job import Claim, Job, JobError, Kind
from tailrace.propagation.reading import Reading, Readings
from tailrace.propagation.spark_tags import TaggingSpark
from tailrace.store import lookup
from tailrace.store.heartbeat import Heartbeat
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo, quoted_name, split_name
from tailrace.store.transaction import Transaction

log = get_logger("tailrace.iteration")


class StoppedError(TailraceError):
    """An iteration was told to stop."""


class SourceGoneError(NotFoundError):
    """A source of the job was dropped, or replaced by another table of its name."""

    code = retry.SOURCE_GONE


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One job of an iteration, with what it reads."""

    claim: Claim
    consumer: Consumer
    kind: Kind
    columns: dict[int, list[str] | None]  # by source
    readings: dict[int, Reading] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Consumed:
    """One job's consumer has run; nothing is committed yet."""

    part: _Part
    job: JobContext
    strategy: str | None
    written: list[tuple[TableInfo, int, int]]  # by this job: tables, with rows and bytes
    running: Running
    seconds: float


@dataclass
class _Turn:
    """Whose turn it is in a bundle: who is to blame if something goes wrong."""

    part: _Part
    running: Running


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
        """`blame` says what is wrong with the node, if a failure is not the job's; `leaves` whether
        it may be another node's to try the job next.
        """
        self._may_begin, self._blame, self._leaves = may_begin, blame, leaves
        # The Spark jobs of a flight are tagged, so that they can be interrupted.
        self._spark = TaggingSpark(runtime.spark)
        self._spark.waits = waits_for_spark
        self._runtime, self._heartbeat = replace(runtime, spark=self._spark), heartbeat
        self._node_id, self._live = node_id, live
        self._random = random or Random()  # noqa: S311  (pauses, no secrets)
        self._observe = observe
        self.readings = Readings(self._runtime)
        self._lake: str | None = None

    def run(self, flight: Flight) -> None:
        """Run a work; what goes wrong with a job is entered with the job, and not raised."""
        work = flight.work
        if not all(self._may_begin(job) for job in work.jobs):
            return  # since it was planned, the node has come to stand back
        with self._runtime.database.lock() as connection:
            claims = claiming.claim(connection, work, node=self._node_id, live=self._live)
        flight.claims = {claim.job.id: claim for claim in claims}
        self._runtime.step("claimed")
        if not claims:
            return
        parts: dict[int, _Part] = {}
        try:
            self._prepare(flight, parts)
            bundles = [
                [parts[job] for job in bundle]
                for bundle in work.bundles()
                if all(job in parts for job in bundle)  # or they stay behind together
            ]
            self._run_bundles(flight, bundles)
        finally:
            for part in parts.values():
                for reading in part.readings.values():
                    self.readings.release(reading)
            self._release(flight)

    # --- before -----------------------------------------------------------------------------

    def _prepare(self, flight: Flight, parts: dict[int, _Part]) -> None:
        """Look up sources and consumers, and say which columns will be read, for all jobs."""
        work = flight.work
        claims = list(flight.claims.values())
        with self._runtime.database.read() as connection:
            infos = {s: lookup.table_by_id(connection, s, work.to) for s in work.sources}
            kinds = {
                since: Kind.TAIL if _has_history(connection, since) else Kind.SNAPSHOT
                for since in {claim.since for claim in claims}
            }
        for claim in claims:
            if claim.since is not None and kinds[claim.since] is Kind.SNAPSHOT:
                log.warning(
                    "history purged: rebuilding", job=claim.job.label, watermark=claim.since
                )
        flight.names = {s: info.full_name for s, info in infos.items() if info is not None}
        for claim in claims:
            kind = kinds[claim.since]
            try:
                part = self._part(claim, infos, kind)
            except Exception as error:  # noqa: BLE001  (a consumer's own code may raise anything)
                self._fail(flight, claim, error, kind, None)
                continue
            parts[claim.job.id] = part
            since = None if kind is Kind.SNAPSHOT else claim.since
            for table, columns in part.columns.items():
                part.readings[table] = self.readings.announce((table, since, work.to), columns)

    def _part(self, claim: Claim, infos: Mapping[int, TableInfo | None], kind: Kind) -> _Part:
        consumer = find_consumer(claim.job.kind)
        if consumer is None:
            raise UnavailableError(f"{why_missing(claim.job.kind)} on this node")
        columns: dict[int, list[str] | None] = {}
        for table in claim.job.sources:
            info = infos[table]
            if info is None:
                raise SourceGoneError(source_gone(claim.job.label))
            wanted = consumer.columns(claim.spec.consumer, claim.last.memory, info)
            for name in wanted or ():
                info.column(name)  # its own mistake must not fail the others' read
            columns[table] = wanted
        return _Part(claim=claim, consumer=consumer, kind=kind, columns=columns)

    # --- running ----------------------------------------------------------------------------

    def _run_bundles(self, flight: Flight, bundles: list[list[_Part]]) -> None:
        """The first alone: what it reads is then there for the others, several at once.

        Unless the changes are small: then Python does the work, and threads would only get in
        each other's way.
        """
        for bundle in bundles[:1]:
            self._run_bundle(flight, bundle)
        rest = bundles[1:]
        readings = [r for bundle in rest for part in bundle for r in part.readings.values()]
        if len(rest) > 1 and not all(reading.is_small for reading in readings):
            workers = min(len(rest), self._runtime.settings.sibling_workers)
            with ThreadPoolExecutor(workers, thread_name_prefix="tailrace-sibling") as pool:
                list(pool.map(lambda bundle: self._run_bundle(flight, bundle), rest))
        else:
            for bundle in rest:
                self._run_bundle(flight, bundle)

    def _run_bundle(self, flight: Flight, parts: list[_Part]) -> None:
        """Run one job, or several that commit together."""
        jobs = tuple(part.claim.job.id for part in parts)
        if flight.must_stop(jobs):
            return
        turn = _Turn(parts[0], self._running(flight, jobs, parts[0]))
        flight.running[jobs] = turn.running
        txn: Transaction | None = None

        def check() -> None:
            if flight.must_stop(jobs):
                raise StoppedError("this iteration was stopped")

        # As the jobs' own tenant sees the lake.
        runtime = replace(self._runtime, tenant=parts[0].claim.job.tenant)
        done: list[_Consumed] = []
        try:
            with self._spark.tagged(turn.running.tag):
                txn = Transaction(runtime, self._heartbeat, check=check, lent=True)
                for number, part in enumerate(parts):
                    if number:
                        check()
                        turn.part, turn.running = part, self._running(flight, jobs, part)
                        flight.running[jobs] = turn.running
                    txn.act_for(part.claim.job.id)
                    done.append(self._consume(flight, part, txn, runtime, turn.running))
                    self._runtime.step("consumed")
                txn.lent = False
                records = self._commit(flight, txn, done, turn)
        except BaseException as error:  # noqa: BLE001  (a consumer may raise anything, and exit)
            if txn is not None:
                txn.lent = False
                txn.rollback()
            self._failed(flight, jobs, turn, error)
            return
        finally:
            del flight.running[jobs]
        self._runtime.step("job committed")
        for part, record in zip(parts, records, strict=True):
            flight.claims.pop(part.claim.job.id, None)
            self._report(part.claim.job, record)

    def _running(self, flight: Flight, jobs: tuple[int, ...], part: _Part) -> Running:
        """A job's turn; each has its own time, also in a bundle."""
        job, now = part.claim.job, time.monotonic()
        limit = job.timeout or self._runtime.settings.iteration_timeout.total_seconds()
        return Running(
            tag=f"tailrace-{self._node_id}-{'-'.join(map(str, jobs))}-{flight.work.to}",
            job=job.id,
            started_at=self._runtime.clock.now(),
            started=now,
            deadline=now + limit,
        )

    def _consume(
        self, flight: Flight, part: _Part, txn: Transaction, runtime: Runtime, running: Running
    ) -> _Consumed:
        claim, before = part.claim, txn.written()
        sources = {}
        for table, reading in part.readings.items():
            source = SourceChanges(
                runtime, reading, part.columns[table], snapshots=part.consumer.snapshots
            )
            sources[quoted_name(source.info.schema, source.info.name)] = source
        since = None if part.kind is Kind.SNAPSHOT else claim.since
        job = JobContext(
            id=claim.job.id,
            name=claim.job.name,
            table=claim.job.home,
            tenant=claim.job.tenant,
            options=claim.spec.consumer,
            since=claim.since,
            to=claim.to,
            # A copy all the way down: what a try that fails does to it must leave no trace.
            memory=copy.deepcopy(claim.last.memory),
            lake=self._lake_id(),
            rebuilds=part.kind is Kind.SNAPSHOT and claim.since is not None,
            is_canceled=lambda: flight.must_stop((claim.job.id,)),
        )
        with consuming(claim.job.label):
            strategy = part.consumer.run(Changes(part.kind, since, claim.to, sources), txn, job)
        _check_memory(job.memory)
        for name in job.owned:
            _check_owned(txn.info(name), claim.job)
        return _Consumed(
            part=part,
            job=job,
            strategy=strategy,
            written=_added(before, txn.written()),
            running=running,
            seconds=time.monotonic() - running.started,
        )

    def _lake_id(self) -> str:
        if self._lake is None:
            with self._runtime.database.read() as connection:
                self._lake = joblog.lake_id(connection)
        return self._lake

    def _commit(
        self, flight: Flight, txn: Transaction, done: list[_Consumed], turn: _Turn
    ) -> list[Iteration]:
        own = {source for one in done for source in one.part.claim.job.sources}
        if own & txn.dropped():
            raise InvalidError("a consumer may not drop a source of its own job")
        records: list[Iteration] = []
        last = turn.part
        consumed = time.monotonic()

        def also(connection: sa.Connection, snapshot: int) -> None:
            for one in done:
                turn.part = one.part
                claim, readings = one.part.claim, one.part.readings.values()
                touched = _ids(connection, one.written, snapshot)
                made = _enter_outputs(connection, claim, touched, one.job.owned, snapshot)
                versions.enter(connection, claim, made.union(touched), snapshot)
                claiming.complete(connection, claim, one.job.memory)
                # The commit is everybody's: its time is counted once.
                more = time.monotonic() - consumed if one is done[-1] else 0.0
                record = replace(
                    self._record(flight, claim, one.part.kind, one.running),
                    seconds=one.seconds + more,
                    strategy=one.strategy,
                    rows_read=sum(reading.rows for reading in readings) + sum(one.job.counted),
                    bytes_read=sum(reading.bytes for reading in readings),
                    rows_written=sum(rows for _, rows, _ in one.written),
                    bytes_written=sum(size for _, _, size in one.written),
                )
                history.record(connection, record)
                records.append(record)
            turn.part = last

        txn.in_commit(also)
        txn.commit()
        return records

    def _record(
        self, flight: Flight, claim: Claim, kind: Kind, running: Running | None
    ) -> Iteration:
        now = self._runtime.clock.now()
        return Iteration(
            job_id=claim.job.id,
            tenant=claim.job.tenant,
            sources=tuple(flight.names.get(s, f"table {s}") for s in claim.job.sources),
            from_snapshot=claim.since,
            to_snapshot=claim.to,
            kind=str(kind),
            node_id=self._node_id,
            started_at=now if running is None else running.started_at,
            ended_at=now,
            seconds=0.0 if running is None else time.monotonic() - running.started,
        )

    def stop(self, flight: Flight) -> None:
        """Interrupt what a flight does at this moment and must not; its threads then find out."""
        for tag in flight.stragglers():
            self._spark.interrupt(tag)

    # --- after ------------------------------------------------------------------------------

    def _failed(
        self, flight: Flight, jobs: tuple[int, ...], turn: _Turn, error: BaseException
    ) -> None:
        """Enter a failure with the job whose turn it was.

        The others of a bundle are at rest again as if nothing had been. A commit that fails is
        the last one's: those beneath it go on without it, and find out about themselves.
        """
        if isinstance(error, FencedError | StoppedError) or flight.must_stop(jobs):
            return  # not its own fault: whoever stopped it has said why
        self._fail(flight, turn.part.claim, error, turn.part.kind, turn.running)

    def _fail(
        self,
        flight: Flight,
        claim: Claim,
        error: BaseException,
        kind: Kind,
        running: Running | None,
        *,
        is_late: bool = False,
    ) -> None:
        """Enter a failure with its job and in the history, unless it is this node's own."""
        # Of one that took too long, Spark is not asked: it may be what does not answer.
        reason = None if is_late else self._blame(claim.job)
        if reason is not None:
            flight.failures += 1
            log.warning("iteration", job=claim.job.label, error=reason, blamed="this node")
            return  # what it claimed is released, and another node may take it
        before = claim.last.error
        was_trigger = before is not None and before.code == retry.TRIGGER
        tries = 1 if was_trigger else claim.job.tries + 1
        settings = self._runtime.settings
        code = retry.final_code(retry.code_of(error), tries, settings)
        permanent = retry.is_permanent(code)
        now = self._runtime.clock.now()
        again: datetime | None = now + retry.pause(tries, settings, self._random, error)
        if self._leaves(error, claim.job):  # it is said, but not counted
            tries, permanent, again = max(1, claim.job.tries), False, None
        message = retry.message_of(error)
        record = replace(self._record(flight, claim, kind, running), error=message)
        with self._runtime.database.lock() as connection:
            entered = claiming.fail(
                connection,
                claim,
                permanent=permanent,
                tries=tries,
                retry_at=None if permanent else again,
                error=JobError(code=code, message=message, at=str(now)),
                repeats=_repeats(claim.job),
            )
            if entered:
                history.record(connection, record)
        flight.claims.pop(claim.job.id, None)
        if entered:
            flight.failures += 1
            self._report(claim.job, record)

    def time_out(self, flight: Flight) -> None:
        """Stop a flight with jobs that took too long: nothing of it can commit any more."""
        late = flight.late()
        flight.stopped.set()
        self.stop(flight)
        for jobs in late:
            running = flight.running.get(jobs)
            claim = None if running is None else flight.claims.get(running.job)
            if claim is not None:
                kind = Kind.SNAPSHOT if claim.since is None else Kind.TAIL
                limit = claim.job.timeout or self._runtime.settings.iteration_timeout.seconds
                error = TimeoutError(f"the iteration took longer than {limit:g} seconds")
                self._fail(flight, claim, error, kind, running, is_late=True)
        self._release(flight)

    def abandon(self, flight: Flight) -> None:
        """Stop a flight that cannot go on through no fault of its jobs: they are free again."""
        flight.stopped.set()
        self._release(flight)

    def _release(self, flight: Flight) -> None:
        """Say that this node runs nothing of this work any more."""
        left, flight.claims = flight.claims, {}
        if left:
            with self._runtime.database.lock() as connection:
                for claim in left.values():
                    job = claim.job
                    claiming.release(connection, job.id, self._node_id, repeats=_repeats(job))

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


def _repeats(job: Job) -> bool:
    """Whether what was begun has to end where it was going to."""
    found = find_consumer(job.kind)
    return found is None or found.repeats_ranges


def _check_memory(memory: object) -> None:
    try:
        json.dumps(memory, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f"what a consumer leaves in job.memory has to be JSON: {error}"
        ) from error


def _check_owned(info: TableInfo, job: Job) -> None:
    """Whether a table can be a job's own: made by this very run, or its own already."""
    if info.id >= 0 and info.derived_by != job.id:
        raise InvalidError(
            f"{info.full_name} was not made by this run of {job.label}: it cannot be its own"
        )


def _added(
    before: list[tuple[TableInfo, int, int]], after: list[tuple[TableInfo, int, int]]
) -> list[tuple[TableInfo, int, int]]:
    """What was written between two moments of a transaction."""
    known = {info.id: (rows, size) for info, rows, size in before}
    found = []
    for info, rows, size in after:
        old_rows, old_size = known.get(info.id, (0, 0))
        if info.id not in known or rows != old_rows:
            found.append((info, rows - old_rows, size - old_size))
    return found


def _ids(
    connection: sa.Connection, written: list[tuple[TableInfo, int, int]], snapshot: int
) -> dict[int, TableInfo]:
    """Tables by their ids; those of this very commit have none before."""
    found = {}
    for info, _, _ in written:
        there: TableInfo | None = info
        if info.id < 0:
            there = lookup.find_table(connection, info.schema, info.name, snapshot)
        if there is not None:
            found[there.id] = there
    return found


def _enter_outputs(
    connection: sa.Connection,
    claim: Claim,
    touched: Mapping[int, TableInfo],
    owned: Iterable[str],
    snapshot: int,
) -> set[int]:
    """Note which tables a job writes to; the first time, see that it does not feed itself.

    Returns those that are its own from now on.
    """
    own = set()
    for name in owned:
        info = lookup.find_table(connection, *split_name(name), snapshot, claim.job.tenant)
        if info is not None and info.derived_by is None:
            own.add(info.id)
    others = {i for i, info in touched.items() if info.derived_by is None} - own
    if not own and not others:
        return own
    new = (own | others) - joblog.outputs_of(connection, claim.job.id)
    if new:
        graph.check_no_loop(connection, claim.job.label, claim.job.sources, new)
        joblog.add_outputs(connection, claim.job.id, sorted(new & own), owned=True)
        joblog.add_outputs(connection, claim.job.id, sorted(new - own), owned=False)
    return own


def _has_history(connection: sa.Connection, since: int | None) -> bool:
    """Whether the change feed reaches back to a watermark; if not, the job is rebuilt."""
    return since is not None and lookup.has_snapshot(connection, since)


def source_gone(label: str) -> str:
    """What a job whose source was dropped is told."""
    return (
        f"a source of {label} was dropped, or replaced by another table of the same name: "
        "register the job again"
    )
