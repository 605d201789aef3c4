"""A bundle: jobs that commit in one transaction.

Most consist of one job, others of jobs that depend on each other, or of siblings that share a
commit because each of them has little to do.

Always true: a job's output, its watermark, what its consumer remembers and its history are one
commit, which fails if the job is no longer as it was claimed. The jobs of a bundle run one after
the other, upstream first; the failure of one is entered with that one.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tailrace.errors import InvalidError, TailraceError
from tailrace.propagation import claims, history, outputs
from tailrace.propagation.changes import Changes, SharedRead, SourceChanges
from tailrace.propagation.consumer import Consumer, JobContext, consuming
from tailrace.propagation.history import Iteration
from tailrace.propagation.job import Claim, RunKind
from tailrace.propagation.scheduler import Execution, Turn
from tailrace.propagation.spark_tags import TaggingSpark
from tailrace.store.counters import COUNT
from tailrace.store.names import quoted_name
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Heartbeat, Transaction
from tailrace.store.workspace import Commit


class StoppedError(TailraceError):
    """An iteration was told to stop."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One job of an iteration, with what it reads."""

    claim: Claim
    consumer: Consumer
    kind: RunKind
    columns: dict[int, list[str] | None]  # by source
    reads: dict[int, SharedRead] = field(default_factory=dict)  # by source

    @property
    def id(self) -> int:
        """The job's."""
        return self.claim.job.id


@dataclass(frozen=True, kw_only=True)
class _Consumed:
    """A job whose consumer has run; nothing is committed yet."""

    part: Part
    turn: Turn
    job: JobContext
    strategy: str | None
    owned: list[TableInfo]  # its own from now on
    written: list[outputs.Written]  # by this job
    seconds: float


class Bundle:
    """Runs the consumers of some jobs, and commits them."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        spark: TaggingSpark,
        execution: Execution,
        parts: Sequence[Part],
        *,
        patience: float | None = None,
    ) -> None:
        """With `patience`, in seconds, what is done by then is committed, and the rest is left."""
        # It sees the lake as the tenant of the jobs does.
        self._runtime = runtime.of_tenant(parts[0].claim.job.tenant)
        self._heartbeat, self._spark, self._execution = heartbeat, spark, execution
        self._parts, self._patience = parts, patience
        self.jobs = tuple(part.id for part in parts)
        # Whose turn it is, and so who is to blame if something fails.
        self.part = parts[0]
        self.turn = self._begin(parts[0])

    def run(self, lake: Callable[[], str]) -> list[Iteration]:
        """Run and commit it; returns the history's entries. `lake` gives the lake's id."""
        with self._spark.tagged(self.turn.tag):
            return self._run(lake)

    def _run(self, lake: Callable[[], str]) -> list[Iteration]:
        base, self._execution.base = self._execution.base, None  # the next one's is newer
        txn = Transaction(
            self._runtime, self._heartbeat, check=self._check, managed=True, base=base
        )
        try:
            done: list[_Consumed] = []
            for part in self._parts:
                if part is not self.part:
                    self._check()
                    self.part, self.turn = part, self._begin(part)
                txn.act_for(part.id)
                done.append(self._consume(txn, lake()))
                self._runtime.step("consumed")
                if self._patience is not None and sum(one.seconds for one in done) > self._patience:
                    break
            txn.managed = False
            return self._commit(txn, done)
        except BaseException:
            txn.managed = False
            txn.rollback()
            raise

    def _check(self) -> None:
        if self._execution.must_stop(self.jobs):
            raise StoppedError("this iteration was stopped")

    def _begin(self, part: Part) -> Turn:
        """Begin a job's turn; in a bundle, too, each job has its own time limit."""
        job, now = part.claim.job, time.monotonic()
        limit = job.timeout or self._runtime.settings.iteration_timeout.total_seconds()
        turn = self._execution.turns[self.jobs] = Turn(
            job=job.id,
            tag=f"tailrace-{job.node}-{'-'.join(map(str, self.jobs))}-{part.claim.to}",
            started_at=self._runtime.clock.now(),
            started=now,
            deadline=now + limit,
        )
        return turn

    def _consume(self, txn: Transaction, lake: str) -> _Consumed:
        part, before = self.part, txn.written()
        claim = part.claim
        sources = {}
        for table, read in part.reads.items():
            source = SourceChanges(
                self._runtime, read, part.columns[table], snapshots=part.consumer.snapshots
            )
            sources[quoted_name(source.info.schema, source.info.name)] = source
        since = None if part.kind is RunKind.SNAPSHOT else claim.since
        job = JobContext(
            id=claim.job.id,
            name=claim.job.name,
            table=claim.job.home,
            tenant=claim.job.tenant,
            options=claim.spec.consumer,
            since=claim.since,
            to=claim.to,
            # A deep copy: a try that fails must leave no trace in it.
            memory=copy.deepcopy(claim.last.memory),
            lake=lake,
            rebuilds=part.kind is RunKind.SNAPSHOT and claim.since is not None,
            is_canceled=lambda: self._execution.must_stop((part.id,)),
        )
        with consuming(claim.job.full_name):
            strategy = part.consumer.run(Changes(part.kind, since, claim.to, sources), txn, job)
        _check_memory(job.memory)
        owned = [txn.info(name) for name in job.owned]
        for info in owned:
            outputs.check_owned(info, claim.job)
        return _Consumed(
            part=part,
            turn=self.turn,
            job=job,
            strategy=strategy,
            owned=owned,
            written=outputs.written_between(before, txn.written()),
            seconds=time.monotonic() - self.turn.started,
        )

    def _commit(self, txn: Transaction, done: list[_Consumed]) -> list[Iteration]:
        own = {source for one in done for source in one.part.claim.job.sources}
        if own & txn.dropped():
            raise InvalidError("a consumer may not drop a source of its own job")
        records: list[Iteration] = []
        last, consumed = self.part, time.monotonic()

        def enter(commit: Commit) -> None:
            statements = commit.statements
            statements.later(COUNT, {"which": ["lsn", "iteration"], "many": len(done)})
            for back, one in zip(reversed(range(len(done))), done, strict=True):
                self.part = one.part
                outputs.enter(commit, one.part.claim, one.written, one.owned)
                claims.complete(statements, one.part.claim, one.job.memory, back)
                # They share the commit, so its time is counted once.
                more = time.monotonic() - consumed if one is done[-1] else 0.0
                records.append(self._record(one, one.seconds + more))
                history.record(statements, records[-1], back)
            self.part = last

        txn.on_commit(enter)
        txn.commit()
        return records

    def _record(self, one: _Consumed, seconds: float) -> Iteration:
        part, now = one.part, self._runtime.clock.now()
        reads = part.reads.values()
        return replace(
            self._execution.record(part.claim, part.kind, one.turn, now),
            seconds=seconds,
            strategy=one.strategy,
            rows_read=sum(read.rows for read in reads) + sum(one.job.counted),
            bytes_read=sum(read.bytes for read in reads),
            rows_written=sum(rows for _, rows, _ in one.written),
            bytes_written=sum(size for _, _, size in one.written),
        )


def _check_memory(memory: object) -> None:
    try:
        json.dumps(memory, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f"what a consumer leaves in job.memory has to be JSON: {error}"
        ) from error
