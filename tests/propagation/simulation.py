"""A lake whose jobs only pretend to work: the runner and the job log are real, all else is dice.

A history is a random walk over what can happen: commits, registrations, drops, updates, failures,
triggers that raise, crashes, restarts, nodes that fall asleep and wake up too late, or fall ill and
stand back. A model notes what every job's commits have covered, and objects at once when a
change is skipped or delivered twice, when a watermark moves back, when something is committed for a
job that is gone, when a job commits a snapshot that something upstream does not reflect, or when
a node that stands back begins something or its failure is counted as a job's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import Together
from tailrace.configuration import Configuration
from tailrace.propagation import claims, joblog
from tailrace.propagation import tables as t
from tailrace.propagation.background import Housekeeping
from tailrace.propagation.claims import FencedError
from tailrace.propagation.job import Claim, JobError, NewJob, State, Work
from tailrace.propagation.layer import JobLayer
from tailrace.propagation.runner import Runner
from tailrace.propagation.spec import complete, updated
from tailrace.propagation.status import STOPPED
from tailrace.propagation.trigger import Trigger, trigger
from tailrace.settings import Settings
from tailrace.store import tables as st
from tailrace.store.counters import COUNT
from tailrace.store.mirror import Mirror
from tailrace.store.open_file import KeptFiles
from tailrace.store.purge import purge
from tailrace.store.runtime import Runtime

if TYPE_CHECKING:
    from tailrace.catalog.database import Database

START = datetime(2026, 1, 1, tzinfo=UTC)
TRIGGERS: list[dict[str, Any]] = [
    {"job_type": "default", "schedule": {}},
    {"job_type": "default", "schedule": {}},
    {"job_type": "greedy", "schedule": {}},
    {"job_type": "periodic", "schedule": {"interval": "30s", "share": True}},
    {"job_type": "periodic", "schedule": {"interval": "30s"}},
    {"job_type": "moody", "schedule": {}},
]


@trigger("moody")
class Moody(Trigger):
    """Runs at once, unless it raises."""

    raises = False

    def due(self, watermark_time: datetime | None, now: datetime) -> datetime:
        if Moody.raises:
            raise RuntimeError("not in the mood")
        return super().due(watermark_time, now)


class SimClock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time


@dataclass
class SimExecution:
    """A work on a node, as far as it got."""

    work: Work
    claims: dict[int, Claim] | None = None  # None: waiting
    todo: list[tuple[int, ...]] = field(default_factory=list)  # bundles


@dataclass(eq=False)
class SimNode:
    """A process that serves the lake."""

    id: str
    runner: Runner
    housekeeping: Housekeeping
    heartbeat: datetime
    executions: list[SimExecution] = field(default_factory=list)
    asleep: bool = False
    lazy: bool = False
    is_ill: bool = False  # and so it stands back


@dataclass
class ModelJob:
    """What must be true of a job."""

    sources: tuple[int, ...]
    upstream: tuple[int, ...] = ()
    labels: list[int] = field(default_factory=list)  # of all its commits
    covered: int | None = None  # the last `to` that was committed
    claim: tuple[int | None, int] | None = None  # begun and not committed
    dropped: bool = False
    stopped: bool = False  # canceled
    lost: bool = False  # what it has to read next was purged while it was stopped


class SimLayer(JobLayer):
    """What the purge asks of the jobs, with the nodes that live in the simulation."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _live(self, _runtime: Runtime, _connection: sa.Connection) -> set[str]:
        return self._world.live()


class World:
    """One history."""

    def __init__(self, database: Database, seed: int) -> None:
        self.random = Random(seed)
        self.database, self.clock = database, SimClock()
        self.log: list[str] = []
        self.settings = Settings(
            reconcile_interval=timedelta(seconds=self.random.choice([5, 30])),
            upkeep_interval=timedelta(minutes=self.random.choice([2, 60])),
            iteration_snapshots=self.random.choice([2, 1000]),
        )
        retention = timedelta(seconds=self.random.choice([0, 10, 20]))
        with database.lock() as connection:
            self.configuration = Configuration(
                snapshot_retention=retention,
                node_timeout=timedelta(seconds=20),
                drop_retention=timedelta(minutes=5),
            )
            configuration.write(connection, self.configuration)
        self.purges = seed % 5 == 0  # not in all of them: it takes its time
        self.runtime = Runtime(
            database=database,
            mirror=Mirror(database),
            storage=None,  # type: ignore[arg-type]
            deletes=None,  # type: ignore[arg-type]
            kept_files=KeptFiles.of(0),
            settings=self.settings,
            clock=self.clock,
            spark=None,  # type: ignore[arg-type]
            step=lambda _: None,
            layers=(SimLayer(self),),
        )
        self.tables = [1, 2, 3][: self.random.randint(1, 3)]
        self.changes: dict[int, list[int]] = {table: [] for table in self.tables}
        self.snapshot = self.oldest = 0
        self.jobs: dict[int, ModelJob] = {}
        self.names = 0
        self.nodes: list[SimNode] = []
        self.node_count = 0
        self.counts: Counter[str] = Counter()
        Moody.raises = False
        self._clear()
        for _ in range(self.random.choice([1, 1, 2])):
            self.start_node()

    def _clear(self) -> None:
        with self.database.write() as connection:
            of_jobs = (t.job, t.job_source, t.job_upstream, st.output)
            for table in (*of_jobs, st.own_table, dl.data_file, dl.table, dl.snapshot):
                connection.execute(sa.delete(table))
            self._insert_snapshot(connection, 0)
            there = [{"table_id": table, "begin_snapshot": 0} for table in self.tables]
            connection.execute(sa.insert(dl.table), there)
            rows = [
                {
                    "table_id": table,
                    "primary_key": "[]",
                    "last_change_snapshot": 0,
                    "last_alter_snapshot": 0,
                }
                for table in self.tables
            ]
            connection.execute(sa.insert(st.own_table), rows)

    def note(self, text: str) -> None:
        self.log.append(f"{(self.clock.time - START).total_seconds():7.1f} {text}")

    # --- what users do ----------------------------------------------------------------------

    def commit(self) -> None:
        touched = self.random.sample(self.tables, self.random.randint(1, len(self.tables)))
        self.snapshot += 1
        with self.database.lock() as connection:
            self._insert_snapshot(connection, self.snapshot)
            for table in touched:
                self.changes[table].append(self.snapshot)
                connection.execute(
                    sa.update(st.own_table)
                    .where(st.own_table.c.table_id == table)
                    .values(last_change_snapshot=self.snapshot)
                )
                connection.execute(
                    sa.insert(dl.data_file).values(
                        data_file_id=self.snapshot * 10 + table,
                        table_id=table,
                        begin_snapshot=self.snapshot,
                        record_count=1,
                        row_id_start=self.snapshot * 10,
                    )
                )
        self.note(f"commit {self.snapshot} of {touched}")

    def _insert_snapshot(self, connection: sa.Connection, number: int) -> None:
        connection.execute(
            sa.insert(dl.snapshot).values(
                snapshot_id=number,
                snapshot_time=self.clock.now(),
                schema_version=0,
                next_catalog_id=0,
                next_file_id=0,
            )
        )

    def purge(self) -> None:
        """Only a job that is stopped, by itself or upstream, and that nobody runs, may
        lose what it has to read.
        """
        before = self.oldest
        self.oldest = purge(self.runtime).horizon
        assert before <= self.oldest <= self.snapshot
        self.counts["purges"] += self.oldest > before
        with self.database.read() as connection:
            for job_id in self.alive():
                row, job = joblog.record(connection, job_id), self.jobs[job_id]
                assert row is not None
                if row.claim_to is None and job.claim is not None:
                    assert job.claim[1] < self.oldest
                    job.claim = None
                reads = job.claim[0 if job.claim[0] is not None else 1] if job.claim else None
                reads = row.watermark if reads is None else reads
                stale = self._is_behind(job_id)
                if reads is not None and stale and reads < self.oldest and not job.lost:
                    holding = [job_id, *(i for i in job.upstream if self._is_behind(i))]
                    rows = joblog.records_by_id(connection, holding)
                    stopped = any(one.state in STOPPED for one in rows.values())
                    assert stopped, f"job {job_id} lost {reads}"
                    assert row.node not in self.live(), f"job {job_id} lost what it reads"
                    job.lost = True
        self.note(f"purge below {self.oldest}")

    def _is_behind(self, job_id: int) -> bool:
        job = self.jobs[job_id]
        return bool(job.claim) or any(s > (job.covered or 0) for s in self._changes(job))

    def register(self, sources: list[int] | None = None) -> None:
        self.names += 1
        if sources is None:
            sources = self.random.choice([[table] for table in self.tables] + [self.tables])
        upstream: list[int] = []
        if self.alive() and self.random.random() < 0.5:
            for direct in self.random.sample(self.alive(), min(2, len(self.alive()))):
                farther = [*self.jobs[direct].upstream, direct]
                upstream += [job_id for job_id in farther if job_id not in upstream]
            under = {table for job_id in upstream for table in self.jobs[job_id].sources}
            sources = sorted(under.union(sources))
        spec = complete(
            {
                "trigger": self.random.choice(TRIGGERS),
                "priority": self.random.randint(0, 2),
                "consumer": {"kind": "sim"},
            }
        )
        with self.database.lock() as connection:
            new = NewJob(
                home="main.t", name=f"j{self.names}", spec=spec, sources=sources, upstream=upstream
            )
            now = self.clock.now()
            (job_id,) = joblog.insert_all(connection, [new], tenant="default", now=now)
        assert job_id not in self.jobs, "a job id was given twice"
        self.jobs[job_id] = ModelJob(sources=tuple(sources), upstream=tuple(upstream))
        self.note(f"register {job_id} on {sources} and {upstream}: {spec.job_type}")

    def alive(self) -> list[int]:
        return [job_id for job_id, job in self.jobs.items() if not job.dropped]

    def drop(self) -> None:
        if self.alive():
            chosen = self.random.choice(self.alive())
            above = [i for i in self.alive() if chosen in self.jobs[i].upstream]
            with self.database.lock() as connection:
                for job_id in [*above, chosen]:
                    assert joblog.drop(connection, job_id, self.clock.now())
                    self.jobs[job_id].dropped = True
                    self.note(f"drop {job_id}")

    def replace(self) -> None:
        """Drop all jobs of a table, and register one anew."""
        table = self.random.choice(self.tables)
        with self.database.lock() as connection:
            for job_id in self.alive():
                if table in self.jobs[job_id].sources:
                    assert joblog.drop(connection, job_id, self.clock.now())
                    self.jobs[job_id].dropped = True
                    self.note(f"drop {job_id}")
        self.register([table])

    def change(self) -> None:
        if not self.alive():
            return
        job_id = self.random.choice(self.alive())
        what = self.random.choice(["update", "interrupt", "pause", "resume", "resume", "cancel"])
        with self.database.lock() as connection:
            row = joblog.record(connection, job_id)
            assert row is not None
            if what in ("update", "interrupt"):
                new = updated(row.spec, {"trigger": self.random.choice(TRIGGERS)})
                write = joblog.stop if what == "interrupt" else joblog.write
                write(connection, job_id, spec=new)
            elif what == "pause":
                joblog.write(connection, job_id, state=State.PAUSED)
            elif what == "cancel":
                joblog.stop(connection, job_id, state=State.CANCELED)
                self.jobs[job_id].stopped = True
            else:
                self._resume(connection, job_id)
        self.note(f"{what} {job_id}")

    def _resume(self, connection: sa.Connection, job_id: int) -> None:
        row = joblog.record(connection, job_id)
        assert row is not None
        state = State.IDLE if row.node is None else State.RUNNING
        joblog.write(connection, job_id, state=state, tries=0, retry_at=None)
        self.jobs[job_id].stopped = False

    def wait(self) -> None:
        self.clock.time += timedelta(seconds=self.random.choice([0.1, 1, 6, 15, 40]))
        for node in self.nodes:
            if not node.asleep:
                node.heartbeat = self.clock.now()

    # --- what nodes do ----------------------------------------------------------------------

    def start_node(self) -> None:
        self.node_count += 1
        node_id = f"n{self.node_count}"
        runner = Runner(
            self.runtime,
            node_id,
            live=lambda _: self.live() | {node_id},
            knows=lambda _: True,
            may_begin=lambda _: not node.is_ill,
            random=Random(self.node_count),
        )
        lazy = bool(self.nodes) and self.random.random() < 0.5
        housekeeping = Housekeeping(self.runtime, runner.advanced)
        node = SimNode(node_id, runner, housekeeping, self.clock.now(), lazy=lazy)
        self.nodes.append(node)
        self.note(f"start {node_id}")

    def live(self) -> set[str]:
        oldest = self.clock.now() - self.configuration.node_timeout
        return {node.id for node in self.nodes if node.heartbeat >= oldest}

    def awake(self) -> list[SimNode]:
        return [node for node in self.nodes if not node.asleep]

    def crash(self) -> None:
        node = self.random.choice(self.nodes)
        self.nodes.remove(node)
        self.note(f"crash {node.id}")
        if not self.nodes or self.random.random() < 0.5:
            self.start_node()

    def sleep(self) -> None:
        node = self.random.choice(self.nodes)
        node.asleep = not node.asleep
        if not node.asleep:
            node.heartbeat = self.clock.now()
        self.note(f"{'sleep' if node.asleep else 'wake'} {node.id}")

    def fall_ill(self) -> None:
        """A node begins to stand back, and what it runs is free for others; or it is well again."""
        node = self.random.choice(self.nodes)
        if node.is_ill:
            self.mend(node)
            return
        node.is_ill = True
        self.counts["ill"] += 1
        self.note(f"{node.id} falls ill")
        with self.database.read() as connection:
            before = _tries(connection, self.alive())
        for execution in list(node.executions):
            self._end(node, execution)
        with self.database.read() as connection:
            after = _tries(connection, self.alive())
        assert before == after, "a failure of the node's own was counted"

    def mend(self, node: SimNode) -> None:
        node.is_ill = False
        node.runner.look_at_held()
        self.note(f"{node.id} is well again")

    def change_mood(self) -> None:
        Moody.raises = not Moody.raises
        self.note(f"triggers {'raise' if Moody.raises else 'are well'}")

    def look(self) -> None:
        if self.awake():
            # Some nodes hardly ever look: then much has happened when they do.
            weights = [0.2 if node.lazy else 1.0 for node in self.awake()]
            self.look_on(*self.random.choices(self.awake(), weights))

    def look_on(self, node: SimNode) -> None:
        for work in node.runner.look():
            self.note(f"{node.id} plans {_shown(work)}")
            assert not node.is_ill, f"{node.id} stands back, and plans {_shown(work)}"
            assert work.to <= self.snapshot
            node.executions.append(SimExecution(work))
        node.housekeeping.run()

    def go_on_somewhere(self) -> None:
        """Some execution gets one step further; a sleeping node's too, now and then: it woke up."""
        busy = [node for node in self.nodes if node.executions]
        busy = [node for node in busy if not node.asleep or self.random.random() < 0.2]
        if busy:
            node = self.random.choice(busy)
            self.go_on(node, self.random.choice(node.executions))

    def go_on(self, node: SimNode, execution: SimExecution, *, may_fail: bool = True) -> None:
        if execution.claims is None:
            self._claim(node, execution)
        elif execution.todo:
            bundle = [execution.claims[job_id] for job_id in execution.todo.pop(0)]
            dice = self.random.random()
            if may_fail and dice < 0.2:
                self._fail(self.random.choice(bundle), permanent=dice < 0.04)
            elif not may_fail or dice < 0.9:
                self._complete(bundle)
            # Or it was stopped half-way, and only its release is written.
        else:
            self._end(node, execution)

    def _claim(self, node: SimNode, execution: SimExecution) -> None:
        work = execution.work
        with self.database.lock() as connection:
            claimed = claims.claim(
                connection, work, node=node.id, live=lambda _: self.live() | {node.id}
            )
        execution.claims = {claim.job.id: claim for claim in claimed}
        execution.todo = [bundle for bundle in work.bundles() if bundle[0] in execution.claims]
        for claim in claimed:
            job = self.jobs[claim.job.id]
            assert not job.dropped, f"job {claim.job.id} was claimed after its drop"
            assert not job.stopped, f"job {claim.job.id} was claimed after its cancel"
            begun = job.claim
            # What stands on others may have to go further than it was going to.
            same = begun == (claim.since, claim.to) or (
                begun is not None and bool(job.upstream) and begun[0] == claim.since
            )
            assert begun is None or (same and claim.to >= begun[1]), (
                f"job {claim.job.id} had claimed {begun}, not {(claim.since, claim.to)}"
            )
            assert claim.to >= self.oldest, f"job {claim.job.id} is to read what was purged"
            if claim.since is not None and claim.since < self.oldest:
                self.counts["rebuilds"] += 1
            job.claim = (claim.since, claim.to)
        self.note(f"{node.id} claims {execution.todo} to {work.to}")

    def _complete(self, bundle: list[Claim]) -> None:
        jobs = [claim.job.id for claim in bundle]
        try:
            with self.database.lock() as connection:
                for claim in bundle:
                    statements = Together(connection)
                    statements.later(COUNT, {"which": ["lsn"], "many": 1})
                    claims.complete(statements, claim, claim.last.memory)
                    statements.flush()
        except FencedError:
            self.counts["fenced"] += 1
            self.note(f"{jobs} are fenced")
            return
        self.counts["bundles"] += len(bundle) > 1
        for claim in bundle:
            self._covered(claim)
        self.note(f"{jobs} commit {[claim.since for claim in bundle]} to {bundle[0].to}")

    def _covered(self, claim: Claim) -> None:
        job, job_id = self.jobs[claim.job.id], claim.job.id
        assert not job.dropped, f"job {job_id} committed after its drop"
        assert not job.stopped, f"job {job_id} committed after its cancel"
        if job.covered is None:
            assert claim.since is None, f"job {job_id} begins at {claim.since}"
        else:
            assert claim.since is not None, f"job {job_id} begins anew"
            assert claim.since >= job.covered, f"job {job_id} delivers changes twice"
            skipped = [s for s in self._changes(job) if job.covered < s <= claim.since]
            assert not skipped, f"job {job_id} skips {skipped}"
            assert claim.to > job.covered, f"the watermark of job {job_id} moves back"
        for upstream in job.upstream:
            self._reflects(upstream, claim.to, job_id)
        job.covered, job.claim, job.lost = claim.to, None, False
        job.labels.append(claim.to)
        self.counts["commits"] += 1

    def _reflects(self, job_id: int, label: int, above: int) -> None:
        """There is a version of a job's output that is what its sources say at a label."""
        job = self.jobs[job_id]
        version = max((one for one in job.labels if one <= label), default=None)
        assert version is not None, f"job {above} is at {label}, and {job_id} upstream nowhere"
        missing = [s for s in self._changes(job) if version < s <= label]
        assert not missing, f"job {above} is at {label}, and {job_id} upstream lacks {missing}"

    def _changes(self, job: ModelJob) -> list[int]:
        return [snapshot for source in job.sources for snapshot in self.changes[source]]

    def _fail(self, claim: Claim, *, permanent: bool) -> None:
        tries = claim.job.tries + 1
        with self.database.lock() as connection:
            claims.fail(
                connection,
                claim,
                permanent=permanent,
                tries=tries,
                retry_at=None if permanent else self.clock.now() + timedelta(seconds=5 * tries),
                error=JobError(code=1, message="simulated", at=str(self.clock.now())),
            )
        self.note(f"{claim.job.id} fails")

    def _end(self, node: SimNode, execution: SimExecution) -> None:
        with self.database.lock() as connection:
            for job_id, claim in (execution.claims or {}).items():
                row = joblog.record(connection, job_id)
                if (row is not None and row.node == node.id and row.epoch == claim.job.epoch) or (
                    row is not None and row.node == node.id and row.dropped_at is not None
                ):
                    claims.release(connection, job_id, node.id)
        node.executions.remove(execution)
        node.runner.finished(execution.work)

    # --- a history --------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Live, then come to rest, and check that everything has arrived."""
        actions = [
            (self.commit, 6),
            (self.register, 3),
            (self.drop, 1),
            (self.change, 2),
            (self.replace, 1),
            (self.wait, 3),
            (self.look, 8),
            (self.go_on_somewhere, 16),
            (self.crash, 1),
            (self.sleep, 1),
            (self.fall_ill, 1),
            (self.change_mood, 1),
            (self.purge, 3 if self.purges else 0),
        ]
        weights = [weight for _, weight in actions]
        for _ in range(steps):
            (action,) = self.random.choices([a for a, _ in actions], weights)
            action()
        self.rest()
        self.check()

    def rest(self) -> None:
        """Let everybody finish: no faults any more, nobody asleep, nothing paused."""
        for node in self.nodes:
            node.asleep = False
            self.mend(node)
        Moody.raises = False
        if (
            self.purges and self.random.random() < 0.5
        ):  # those that are stopped come back after a long time
            self.clock.time += timedelta(minutes=1)
            self.commit()
            self.purge()
        with self.database.lock() as connection:
            for job_id in self.alive():
                self._resume(connection, job_id)
        for _ in range(60):
            self.clock.time += timedelta(seconds=31)
            for node in self.nodes:
                node.heartbeat = self.clock.now()
            while any(self._settle(node) for node in self.nodes):
                pass
            if all(self._is_fresh(job_id) for job_id in self.alive()):
                return
        behind = [job_id for job_id in self.alive() if not self._is_fresh(job_id)]
        raise AssertionError(f"jobs {behind} never arrive")

    def _settle(self, node: SimNode) -> bool:
        self.look_on(node)
        had = bool(node.executions)
        while node.executions:
            self.go_on(node, self.random.choice(node.executions), may_fail=False)
        return had

    def _is_fresh(self, job_id: int) -> bool:
        job = self.jobs[job_id]
        return job.covered is not None and all(s <= job.covered for s in self._changes(job))

    def check(self) -> None:
        """A group has converged when its next change is one iteration for all of it."""
        if self.random.random() < 0.5:
            # Groups that were apart have to come together even when they are never idle.
            self.commit()
            self.rest()
        node = self.random.choice(self.nodes)
        self.nodes = [node]
        self.look_on(node)
        assert not node.executions, "something is left to do"
        self.commit_all()
        self.clock.time += timedelta(minutes=10)
        node.heartbeat = self.clock.now()
        self.look_on(node)
        works = [execution.work for execution in node.executions]
        if self.settings.iteration_snapshots > 100:
            self._check_works(works, list(node.runner.cache.groups.values()))
        self.rest()

    def _check_works(self, works: list[Work], groups: list[list[int]]) -> None:
        jobs = [job_id for work in works for job_id in work.jobs]
        assert sorted(jobs) == sorted(self.alive()), "each job runs once"
        work_of = {job_id: work for work in works for job_id in work.jobs}
        for group in groups:
            assert len({id(work_of[job_id]) for job_id in group}) == 1, f"{group} is apart"
        for job_id in jobs:
            bundles = [b for b in work_of[job_id].bundles() if job_id in b]
            assert len(bundles) == 1
            upstream = self.jobs[job_id].upstream
            assert set(upstream) <= set(bundles[0]), f"{job_id} is apart from its upstream"
            assert all(bundles[0].index(i) < bundles[0].index(job_id) for i in upstream)
            if not upstream and not any(job_id in self.jobs[i].upstream for i in jobs):
                assert bundles == [(job_id,)]

    def commit_all(self) -> None:
        tables, self.tables = self.tables, list(self.tables)
        for _ in range(20):
            self.commit()
            if all(self.changes[table][-1:] for table in tables):
                break
        pending = [table for table in tables if self.changes[table][-1:] != [self.snapshot]]
        if pending:  # one snapshot that changes all of them
            self.random_sample_all()

    def random_sample_all(self) -> None:
        real = self.random
        self.random = _All()  # type: ignore[assignment]
        try:
            self.commit()
        finally:
            self.random = real


def _shown(work: Work) -> str:
    parts = [f"{member.job.id} from {member.since}" for member in work.members]
    return f"{', '.join(parts)} to {work.to}, together {work.together}"


class _All(Random):
    """Dice that choose everything."""

    def randint(self, _low: int, high: int) -> int:
        return high


def _tries(connection: sa.Connection, jobs: list[int]) -> dict[int, int]:
    found = joblog.records_by_id(connection, jobs)
    return {job_id: found[job_id].tries for job_id in jobs}
