"""The runner: learns what changed, finds the stale jobs, and hands out work.

`look` is one wake-up: it asks once what changed in the lake and in the job log, and is done if
nothing did. It starts no Spark job. `Runner` has a lock but no threads or timers, so that tests can
drive it step by step.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from random import Random

import sqlalchemy as sa

from tailrace.catalog import configuration
from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.configuration import Configuration
from tailrace.errors import UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import claims, freshness, joblog, retry
from tailrace.propagation.consumer import find_consumer
from tailrace.propagation.job import Job, JobError, State, Work
from tailrace.propagation.job_cache import DueTimes, Entry, GroupKey, JobCache, group_key, read_news
from tailrace.propagation.plan import Rules, link, plan_group
from tailrace.propagation.trigger import Unknown
from tailrace.store.runtime import Runtime

log = get_logger("tailrace.runner")


class Runner:
    """What a node knows of the lake's jobs, and decides to run."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: str,
        *,
        live: Callable[[sa.Connection], set[str]],
        knows: Callable[[str], bool] = lambda kind: find_consumer(kind) is not None,
        fence: Callable[[dict[int, int]], None] = lambda _jobs: None,
        eager: bool = False,
        wanted: Callable[[Job], bool] = lambda _job: True,
        gave_up: Callable[[Job], bool] = lambda _job: False,
        may_begin: Callable[[int], bool] = lambda _job: True,
        random: Random | None = None,
    ) -> None:
        """`live` gives the live nodes; `knows` tells whether a kind of consumer is available here.

        `fence` stops what runs with an older epoch than the one given for its job; `eager` ignores
        triggers and pauses between tries; `wanted` selects the jobs to run, with which their
        upstream comes along; `gave_up` those not to run any more; `may_begin` those that this node
        can run at the moment: see `look_at_held`.
        """
        self._runtime, self._node_id = runtime, node_id
        self._live_nodes, self._knows, self._fence = live, knows, fence
        self._eager, self._wanted, self._gave_up = eager, wanted, gave_up
        self._may_begin = may_begin
        self._held: set[GroupKey] = set()  # groups with jobs that this node may not begin now
        self.cache = JobCache()
        self.live: set[str] = {node_id}
        self._lock = threading.RLock()
        self._dirty: set[GroupKey] = set()
        self._due = DueTimes()
        self._reconciled: datetime | None = None
        self._nodes_read: datetime | None = None
        self._node_timeout = Configuration().node_timeout  # as last read
        self._dead: set[str] = set()  # nodes that were found dead then
        self._missing: set[str] = set()  # kinds of consumers that are not known here
        self._times: dict[int, datetime | None] = {}
        self._faults: list[tuple[Job, Exception | None]] = []  # of triggers, in this look
        self._random = random or Random()  # noqa: S311  (pauses, no secrets)

    # --- one wake-up ------------------------------------------------------------------------

    def look(self) -> list[Work]:
        """Find what to run now; each returned work counts as begun until `finished`."""
        with self._lock:
            now = self._runtime.clock.now()
            interval = self._runtime.settings.reconcile_interval
            full = self._reconciled is None or now - self._reconciled >= interval
            # What is read beside the news never changes, unless everything is compared.
            database = self._runtime.database
            with database.read_at_once() if full else database.read() as connection:
                self._read(connection, full=full)
                if full:
                    self._reconciled = now
                    self._heal()
                check = self._node_check(now)
                if check is not None and check <= now:
                    self.live, self._nodes_read = self._live_nodes(connection), now
                    self._node_timeout = configuration.read(connection).node_timeout
                    self._dead = self._claiming() - self.live
                    for entry in self.cache.left_behind(self.live):
                        self._dirty |= self.cache.concerned(entry.job.id)
                self._dirty |= self._due.pop(now)
                works = self._plan(connection, now) if self._dirty else []
            for work in works:
                for job in work.jobs:
                    self.cache.entries[job].work = work
            self._enter_faults(now)
            return works

    def _read(self, connection: sa.Connection, *, full: bool) -> None:
        """Bring the cache up to date. Everything is read before anything is applied."""
        cache = self.cache
        since = cache.snapshot if cache.snapshot >= 0 else None
        news = read_news(connection, since, cache.lsn)
        jobs = joblog.with_sources(connection, news.jobs, cache.job)
        gone: list[int] = []
        if full:
            numbers = joblog.numbers(connection)
            fresh = {job.id for job, _ in jobs}
            missed = [
                job_id
                for job_id, number in numbers.items()
                if job_id not in fresh and self._must_be_read(job_id, number)
            ]
            jobs += joblog.jobs_by_id(connection, missed)
            read = {job.id for job, _ in jobs}
            gone = [i for i in cache.entries if i not in numbers and i not in read]
        known = cache.last_change
        # Also for known sources: their last follower may be dropped in this very look.
        new = {
            source
            for job, dropped in jobs
            if not dropped
            for source in job.sources
            if source not in known or job.id not in cache.entries
        }
        last = freshness.last_changes(connection, new) if new else {}
        # All is read: from here on, nothing can fail half-way.
        epochs = {job.id: job.epoch for job, _ in jobs if self._in_work(job.id)}
        cache.lsn, cache.oldest = max(cache.lsn, news.lsn), news.oldest
        self._dirty |= cache.change(
            news.changed, news.newest, None if since is None else news.moved
        )
        self._dirty |= cache.apply(jobs)
        cache.last_change.update({s: n for s, n in last.items() if s in cache.by_source})
        cache.forget(gone)
        if full and any(self._knows(kind) for kind in self._missing):
            self._missing = set()
            self._dirty |= set(cache.groups)
        if epochs:
            self._fence(epochs)

    def _must_be_read(self, job_id: int, number: int) -> bool:
        entry = self.cache.entries.get(job_id)
        # An unknown trigger may have been registered since.
        return entry is None or entry.job.lsn != number or isinstance(entry.job.trigger, Unknown)

    def _in_work(self, job_id: int) -> bool:
        entry = self.cache.entries.get(job_id)
        return entry is not None and entry.work is not None

    def _node_check(self, now: datetime) -> datetime | None:
        """When to check that the nodes that run jobs are alive; None if no other node runs any."""
        claiming = self._claiming() - {self._node_id}
        if not claiming:
            return None
        if self._nodes_read is None or not claiming <= self.live | self._dead:
            return now  # one of them is new
        return self._nodes_read + self._node_timeout / 4

    def _claiming(self) -> set[str]:
        nodes = (self.cache.entries[job_id].job.node for job_id in self.cache.claimed)
        return {node for node in nodes if node is not None}

    def _plan(self, connection: sa.Connection, now: datetime) -> list[Work]:
        rules = Rules(
            now=now,
            is_ready=self._is_ready,
            live=self.live,
            time_of=lambda snapshot: self._time_of(connection, snapshot),
            eager=self._eager,
        )
        works: list[Work] = []
        for key in self._dirty:
            members = [e for e in self.cache.members(key) if self._wanted(e.job)]
            plan = plan_group(self.cache, members, rules)
            works += (self._bounded(connection, work) for work in plan.works)
            self._faults += plan.faults
            if plan.next_due is not None:
                self._due.add(key, plan.next_due)
        self._dirty = set()
        large = self._large(connection, works)
        return [self._in_lane(work, large) for work in link(self.cache, works)]

    def _large(self, connection: sa.Connection, works: list[Work]) -> set[int]:
        """The jobs that have a lot to read."""
        newest, settings = self.cache.snapshot, self._runtime.settings
        last = [
            work
            for work in works
            if work.to == newest == (work.members[0].since or 0) + 1 and not self._is_small(work)
        ]
        tables = {table for work in last for table in work.sources}
        large = freshness.large_tables(connection, tables, newest, settings) if tables else set()
        return {
            job
            for work in works
            if work.is_backlog or (large and not large.isdisjoint(work.sources))
            for job in work.jobs
        }

    def _is_small(self, work: Work) -> bool:
        """Whether it is known without a question that a work has little to read."""
        rows, settings = self.cache.most_rows(work), self._runtime.settings
        if rows is None or rows > min(settings.local_rows, settings.iteration_rows):
            return False
        return work.to - (work.members[0].since or 0) <= settings.iteration_snapshots

    def _in_lane(self, work: Work, large: set[int]) -> Work:
        """A work with `is_backlog` as its members have it, which may have been put together."""
        is_backlog = any(
            member.job.id in large
            or member.since is None
            or member.since < self.cache.oldest
            or member.catches_up
            for member in work.members
        )
        return work if work.is_backlog == is_backlog else replace(work, is_backlog=is_backlog)

    def _enter_faults(self, now: datetime) -> None:
        """Enter with their jobs which triggers raised, and which work again."""
        faults, self._faults = self._faults, []
        for some in in_batches(faults, 100):  # others want to commit in between
            try:
                with self._runtime.database.lock() as connection:
                    for job, error in some:
                        self._enter_fault(connection, job, error, now)
            except UnavailableError as error:  # the plan goes on; the fault will be found again
                log.warning("faults of triggers not entered", error=repr(error)[:500])
                for job, _ in some:
                    self._due.add(group_key(job), now + retry.SOON)

    def _enter_fault(
        self, connection: sa.Connection, job: Job, error: Exception | None, now: datetime
    ) -> None:
        if error is None:
            claims.clear_trigger_fault(connection, job, retry.TRIGGER)
            return
        log.warning("trigger failed", job=job.full_name, error=repr(error)[:500])
        message = f"the trigger failed: {retry.message_of(error)}"
        failure = JobError(code=retry.TRIGGER, message=message, at=str(now))
        pause = retry.pause(job.tries + 1, self._runtime.settings, self._random)
        claims.enter_trigger_fault(connection, job, failure, now + pause)

    def _is_ready(self, entry: Entry) -> bool:
        job = entry.job
        if not self._knows(job.kind):
            self._missing.add(job.kind)
            return False
        if isinstance(job.trigger, Unknown) or self._gave_up(job):
            return False
        if not self._may_begin(job.id):
            self._held |= self.cache.concerned(job.id)
            return False
        if job.state is State.RUNNING:
            return job.node not in self.live
        return job.node is None

    def _bounded(self, connection: sa.Connection, work: Work) -> Work:
        is_bound = any(member.job.claim_to is not None for member in work.members)
        since = work.members[0].since  # one group's, so all have the same
        if since is None or is_bound or since < self.cache.oldest:
            return work
        if self._is_small(work):
            return work
        settings = self._runtime.settings
        to, is_small = freshness.cut(connection, work.sources, since, work.to, settings)
        if to == work.to and is_small:
            return work
        return replace(work, to=to, is_backlog=not is_small)

    def _time_of(self, connection: sa.Connection, snapshot: int) -> datetime | None:
        if snapshot not in self._times:
            if len(self._times) > 10_000:
                self._times.clear()
            c = dl.snapshot.c
            query = sa.select(c.snapshot_time).where(c.snapshot_id == snapshot)
            self._times[snapshot] = connection.execute(query).scalar_one_or_none()
        return self._times[snapshot]

    # --- between ----------------------------------------------------------------------------

    def finished(self, work: Work, *, broken: bool = False) -> None:
        """A work is over; if it broke without an entry in the job log, its groups wait a moment."""
        again = self._runtime.clock.now() + retry.SOON
        with self._lock:
            if broken:
                self._reconciled = None  # its claims may have to be released
            for job in work.jobs:
                entry = self.cache.entries.get(job)
                if entry is not None and entry.work is work:
                    entry.work = None
                    for key in self.cache.concerned(job):
                        if broken:
                            self._due.add(key, again)
                        else:
                            self._dirty.add(key)

    def look_at_held(self) -> None:
        """Plan again the jobs that this node might not begin: it may now, or some others."""
        with self._lock:
            self._dirty |= self._held
            self._held = set()

    def lost_touch(self) -> None:
        """The catalog did not answer: the next look compares everything with the job log."""
        with self._lock:
            self._reconciled = None

    def next_due(self) -> datetime | None:
        """When to look again if nothing happens before."""
        with self._lock:
            moments = [self._due.next()]
            if self._reconciled is not None:
                moments.append(self._reconciled + self._runtime.settings.reconcile_interval)
            moments.append(self._node_check(self._runtime.clock.now()))
            return min((one for one in moments if one is not None), default=None)

    def states(self) -> dict[str, int]:
        """How many jobs are in which state."""
        with self._lock:
            entries = list(self.cache.entries.values())
        counts = Counter(str(entry.job.state) for entry in entries)
        # Queued on this node. They are counted under their state at rest as well.
        counts["pending"] = sum(e.work is not None and e.job.node is None for e in entries)
        return dict(counts)

    # --- repairs and watermarks ---------------------------------------------------------------

    def _heal(self) -> None:
        """Release jobs that are claimed here but do not run: their end could not be written."""
        lost = [
            job_id
            for job_id in self.cache.claimed
            if self.cache.entries[job_id].job.node == self._node_id
            and self.cache.entries[job_id].work is None
        ]
        if lost:
            with self._runtime.database.lock() as connection:
                for job_id in lost:
                    claims.release(connection, job_id, self._node_id)

    def advanced(self) -> dict[int, tuple[int, int]]:
        """By job, the stored watermark and the one it has by now, where they differ."""
        with self._lock:
            advanced = {}
            for entry in self.cache.entries.values():
                effective, stored = self.cache.effective(entry), entry.job.watermark
                if effective is not None and stored is not None and effective > stored:
                    advanced[entry.job.id] = (stored, effective)
            return advanced
