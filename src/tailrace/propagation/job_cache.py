"""The job log in a runner's memory, indexed by group, by source table and by upstream job.

Always true: it is what the job log and the catalog said at one look, applied as a whole. Updating
it costs in proportion to what changed, finding stale jobs to the jobs of the changed tables.
`DueTimes` says when to look at which group again.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.part import Int
from tailrace.propagation import tables as t
from tailrace.propagation.freshness import is_fresh
from tailrace.propagation.job import Job, JobRecord, State, Work
from tailrace.propagation.joblog import from_row
from tailrace.store import tables as st
from tailrace.store.lookup import NEWEST, NO_SNAPSHOT, OLDEST
from tailrace.store.table_files import CAME, LOST, WENT

GroupKey = Hashable


@dataclass(slots=True)
class Entry:
    """A job in the cache."""

    job: Job
    # The stored watermark, advanced over snapshots in which its sources did not change.
    watermark: int | None
    work: Work | None = None  # on this node, queued or running

    def target(self, live: Collection[str]) -> int | None:
        """The snapshot that a running iteration will reach, here or on another live node."""
        if self.work is not None:
            return self.work.to
        return self.job.claim_to if self.job.node in live else None

    def moves_front(self, live: Collection[str]) -> bool:
        """Whether a running iteration of it advances the front of its group."""
        if self.work is not None:
            member = self.work.by_job[self.job.id]
            return member.since is not None and not member.catches_up
        running = self.job.node in live and self.job.watermark is not None
        return running and not self.job.catches_up


@dataclass(frozen=True, kw_only=True)
class News:
    """What happened in the lake and in the job log since a runner looked last."""

    oldest: int  # snapshot
    newest: int  # snapshot
    lsn: int  # the last number of the job log
    changed: dict[int, int]  # when tables changed last, of those that did
    # At most so many rows came and went in those that jobs follow, if it was asked.
    moved: dict[int, int]
    jobs: list[JobRecord]  # written since


def _sum_since(
    table: sa.Table,
    rows: sa.Column[int],
    snapshot: sa.ColumnElement[int],
    counts: sa.ColumnElement[bool],
) -> sa.ColumnElement[int]:
    query = sa.select(sa.func.sum(rows)).where(table.c.table_id == _CHANGED.table_id, counts)
    query = query.where(snapshot > sa.bindparam("counted_since", type_=Int))
    return sa.func.coalesce(query.correlate(st.own_table).scalar_subquery(), 0)


_CHANGED, _FILES, _DELETES = st.own_table.c, dl.data_file.c, dl.delete_file.c
_IS_FOLLOWED = (
    sa.exists().where(t.job_source.c.table_id == _CHANGED.table_id).correlate(st.own_table)
)
# Never too few: of a delete file, all the positions that were ever deleted.
_MOVED = sa.case(
    (
        _IS_FOLLOWED,
        _sum_since(dl.data_file, _FILES.record_count, _FILES.begin_snapshot, CAME)
        + _sum_since(dl.data_file, _FILES.record_count, _FILES.end_snapshot, WENT)
        + _sum_since(
            dl.delete_file,
            _DELETES.delete_count,
            sa.func.coalesce(_DELETES.partial_max, _DELETES.begin_snapshot),
            LOST,
        ),
    )
)
# No snapshot is later.
_NOTHING_SINCE = 2**62
# Written jobs, then the rest, once for each table that has changed, or once.
_NEWS: sa.CompoundSelect[Any] = sa.union_all(
    sa.select(
        t.job,
        sa.null().label("oldest"),
        sa.null().label("newest"),
        sa.null().label("last"),
        sa.null().label("table_id"),
        sa.null().label("changed"),
        sa.null().label("moved"),
    ).where(t.job.c.lsn > sa.bindparam("lsn", type_=Int)),
    sa.select(
        *(sa.null().label(column.name) for column in t.job.c),
        OLDEST,
        NEWEST,
        st.counter.c.value,
        _CHANGED.table_id,
        _CHANGED.last_change_snapshot,
        _MOVED,
    )
    .select_from(st.counter)
    .outerjoin(st.own_table, _CHANGED.last_change_snapshot > sa.bindparam("since", type_=Int))
    .where(st.counter.c.name == "lsn"),
)


def read_news(connection: sa.Connection, since: int | None, lsn: int) -> News:
    """What happened after a snapshot and a number of the job log; one statement, one moment.

    With None, all that ever happened, without the numbers of rows.
    """
    jobs, changed, moved = [], {}, {}
    given = {
        "since": NO_SNAPSHOT if since is None else since,
        "counted_since": _NOTHING_SINCE if since is None else since,
        "lsn": lsn,
    }
    for row in connection.execute(_NEWS, given):
        if row.last is None:
            jobs.append(from_row(row))
            continue
        oldest, newest, last = row.oldest, row.newest, row.last
        if row.table_id is not None:
            changed[row.table_id] = row.changed
            if row.moved is not None:
                moved[row.table_id] = int(row.moved)
    jobs.sort(key=lambda job: job.lsn)
    return News(oldest=oldest, newest=newest, lsn=last, changed=changed, moved=moved, jobs=jobs)


@dataclass
class JobCache:
    """All jobs of a lake that are not dropped."""

    snapshot: int = -1  # the newest one at the last look
    oldest: int = -1  # the oldest one then: changes before it are no longer known
    # The newest one at the look before, and the rows that sources gained and lost in between.
    before: int | None = None
    moved: Mapping[int, int] = field(default_factory=dict)
    lsn: int = -1  # how far the job log has been read
    entries: dict[int, Entry] = field(default_factory=dict)
    groups: dict[GroupKey, list[int]] = field(default_factory=dict)
    by_source: dict[int, list[int]] = field(default_factory=dict)
    downstream: dict[int, list[int]] = field(default_factory=dict)  # jobs, by upstream job
    last_change: dict[int, int] = field(default_factory=dict)  # of every source table
    claimed: set[int] = field(default_factory=set)  # jobs that a node has claimed

    def apply(self, jobs: Iterable[tuple[Job, bool]]) -> set[GroupKey]:
        """Take over rows of the job log; returns the groups to plan again."""
        touched = set()
        for job, dropped in jobs:
            old = self.entries.get(job.id)
            if old is not None:
                touched.add(group_key(old.job))
                self._leave_group(old.job)
            if dropped:
                self._remove(job.id)
                continue
            self._place(job, old)
            touched |= self.concerned(job.id)
        return touched

    def concerned(self, job_id: int) -> set[GroupKey]:
        """The groups to plan again when a job has changed: its own, and those downstream."""
        keys = {group_key(self.entries[job_id].job)}
        if job_id in self.downstream:
            keys |= {group_key(self.entries[i].job) for i in self.downstream[job_id]}
        return keys

    def job(self, job_id: int) -> Job | None:
        """A job, if it is known."""
        entry = self.entries.get(job_id)
        return None if entry is None else entry.job

    def upstream(self, job: Job) -> list[Entry]:
        """The upstream jobs of a job."""
        return [self.entries[i] for i in job.upstream if i in self.entries]

    def forget(self, job_ids: Iterable[int]) -> None:
        """Remove jobs whose rows are gone."""
        for job_id in list(job_ids):
            self._leave_group(self.entries[job_id].job)
            self._remove(job_id)

    def _place(self, job: Job, old: Entry | None) -> None:
        if old is None:
            self.entries[job.id] = Entry(job, job.watermark)
            for table in job.sources:
                self.by_source.setdefault(table, []).append(job.id)
            for upstream in job.upstream:
                self.downstream.setdefault(upstream, []).append(job.id)
        else:
            # An iteration is finished from where it began, whoever finishes it.
            if job.claim_to is not None or old.job.watermark != job.watermark:
                old.watermark = job.watermark
            old.job = job
        if job.node is not None:
            self.claimed.add(job.id)
        else:
            self.claimed.discard(job.id)
        self.groups.setdefault(group_key(job), []).append(job.id)

    def _leave_group(self, job: Job) -> None:
        key = group_key(job)
        members = self.groups[key]
        members.remove(job.id)
        if not members:
            del self.groups[key]

    def _remove(self, job_id: int) -> None:
        self.claimed.discard(job_id)
        entry = self.entries.pop(job_id, None)
        if entry is None:
            return
        for table in entry.job.sources:
            followers = self.by_source[table]
            followers.remove(job_id)
            if not followers:
                del self.by_source[table]
                self.last_change.pop(table, None)
        for upstream in entry.job.upstream:
            self.downstream[upstream].remove(job_id)
            if not self.downstream[upstream]:
                del self.downstream[upstream]

    def change(
        self, changed: Mapping[int, int], newest: int, moved: Mapping[int, int] | None = None
    ) -> set[GroupKey]:
        """Note which tables changed up to a snapshot; returns the groups of their jobs.

        `moved` are the rows that they gained and lost.
        """
        self.before, self.moved = (None, {}) if moved is None else (self.snapshot, moved)
        touched = set()
        affected: list[Entry] = []
        for table in changed:
            affected += (self.entries[job_id] for job_id in self.by_source.get(table, ()))
        for entry in affected:
            touched.add(group_key(entry.job))
            # Nothing had changed by the last look, so its output reflects that snapshot.
            if entry.watermark is not None and not self.is_stale(entry):
                entry.watermark = max(entry.watermark, self.snapshot)
        for table, snapshot in changed.items():
            if table in self.by_source:
                self.last_change[table] = snapshot
        self.snapshot = newest
        return touched

    def is_stale(self, entry: Entry) -> bool:
        """Whether a source has changed since the job's watermark, or may have."""
        changes = (self.last_change.get(table) for table in entry.job.sources)
        return not is_fresh(entry.watermark, changes)

    def effective(self, entry: Entry) -> int | None:
        """The snapshot that the job's output reflects: the newest one unless it is stale."""
        return entry.watermark if self.is_stale(entry) else self.snapshot

    def is_settled(self, entry: Entry) -> bool:
        """Whether it has nothing to do: nothing begun, and not stale."""
        return entry.job.claim_to is None and not self.is_stale(entry)

    def most_rows(self, work: Work) -> int | None:
        """The most rows that a work has to read, if it reads no more than the last look found."""
        since = work.members[0].since
        if since is None or self.before is None or since < self.before or work.to != self.snapshot:
            return None
        return sum(self.moved.get(table, 0) for table in work.sources)

    def members(self, key: GroupKey) -> list[Entry]:
        return [self.entries[job_id] for job_id in self.groups.get(key, ())]

    def left_behind(self, live: Collection[str]) -> list[Entry]:
        """Jobs that a dead node was running."""
        entries = (self.entries[job_id] for job_id in self.claimed)
        return [e for e in entries if e.job.state is State.RUNNING and e.job.node not in live]


def group_key(job: Job) -> GroupKey:
    """Jobs with equal keys keep equal watermarks."""
    if not job.trigger.shares:
        return job.id
    return job.rule, tuple(sorted(set(job.sources)))


class DueTimes:
    """A heap of moments, of which each group has at most one that counts."""

    def __init__(self) -> None:
        # Keys are of several types, so that a number decides between equal moments.
        self._heap: list[tuple[datetime, int, GroupKey]] = []
        self._earliest: dict[GroupKey, datetime] = {}
        self._numbers = itertools.count()

    def add(self, key: GroupKey, moment: datetime) -> None:
        """Look at a group at a moment, unless it is due before that anyway."""
        known = self._earliest.get(key)
        if known is None or moment < known:
            self._earliest[key] = moment
            heapq.heappush(self._heap, (moment, next(self._numbers), key))

    def pop(self, now: datetime) -> set[GroupKey]:
        """The groups that are due by now; they are forgotten."""
        due = set()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            self._earliest.pop(key, None)
            due.add(key)
        return due

    def next(self) -> datetime | None:
        """When the next of them is due."""
        return self._heap[0][0] if self._heap else None
