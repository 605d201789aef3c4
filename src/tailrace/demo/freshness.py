"""How fresh the derived data is: looked at a few times a second, and added up at the end.

What is behind is counted in commits of the writer that touched a source: the lake's own snapshots
are more, because each refresh is one too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.demo.derived import ALL, CITIES, INDEXES, Derived, Replica
from tailrace.demo.searches import Search, Searcher
from tailrace.demo.writer import Commit

if TYPE_CHECKING:
    from tailrace.lake import Lake
    from tailrace.propagation.history import Iteration
    from tailrace.propagation.status import JobStatus

# Reading rows only to count them takes at most one part in so many of the time.
_SPARE = 20
_MOST_COUNTED = 20_000  # rows; larger tables are counted only once


@dataclass(frozen=True, kw_only=True)
class Line:
    """One derived object at one moment."""

    derived: Derived
    rows: int | None  # when they were counted last
    watermark: int | None
    commits_behind: int
    seconds_behind: float  # since the oldest of those commits
    error: str | None
    strategy: str | None  # of the last refresh
    seconds: float | None  # that it took
    refreshes: int


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The whole demo at one moment."""

    lines: tuple[Line, ...]
    snapshot: int
    commits: int
    rate: float  # commits per second of late
    recent: tuple[Commit, ...]  # newest first
    cities: tuple[tuple[str, float], ...]  # what the view on a view says, most first
    searches: tuple[Search, ...] = ()  # what the indexes find, one each


@dataclass(frozen=True, kw_only=True)
class Refreshes:
    """What was done for one derived object in the live part."""

    count: int
    seconds: float
    strategies: dict[str, int]
    delays: tuple[float, ...]  # seconds from each commit to its effect


def rows_of(lake: Lake, derived: Derived) -> pa.Table:
    """The rows of a view or a replica, which are few."""
    holder = lake.table if isinstance(derived, Replica) else lake.view
    return holder(derived.name).to_arrow()


class Watcher:
    """Looks at the lake; each look is some reads of the catalog and now and then of small rows."""

    def __init__(self, lake: Lake, commits: Sequence[Commit], *, since: datetime) -> None:
        self._lake, self._commits, self._since = lake, commits, since
        self.searcher = Searcher(lake)
        self._refreshes: dict[int, list[Iteration]] = {}  # by job, newest last
        self._seen: set[tuple[int, datetime]] = set()
        self._rows: dict[str, int] = {}
        self._cities: tuple[tuple[str, float], ...] = ()
        self._count_at = time.monotonic()
        self._count(ALL)

    def look(self) -> Picture:
        """Look at everything once."""
        jobs = {(job.table, job.name): job for job in self._lake.jobs.list()}
        self._read_history()
        searches = self.searcher.look()
        self._rows |= {search.index.name: search.rows for search in searches}
        if time.monotonic() >= self._count_at:
            self._count([derived for derived in ALL if derived.is_cheap])
        return Picture(
            lines=tuple(self._line(derived, jobs[derived.job]) for derived in ALL),
            snapshot=self._lake.snapshot,
            commits=len(self._commits),
            rate=self._rate(),
            recent=tuple(reversed(self._commits[-8:])),
            cities=self._cities,
            searches=searches,
        )

    def _line(self, derived: Derived, job: JobStatus) -> Line:
        missing = [] if job.is_fresh else self._missing(job)
        done = self._refreshes.get(job.job_id, [])
        return Line(
            derived=derived,
            rows=self._rows.get(derived.name),
            watermark=job.watermark,
            commits_behind=len(missing),
            seconds_behind=max(0.0, time.time() - missing[-1].at) if missing else 0.0,
            error=job.error,
            strategy=done[-1].strategy if done else None,
            seconds=done[-1].seconds if done else None,
            refreshes=len(done),
        )

    def _missing(self, job: JobStatus) -> list[Commit]:
        """The commits that a job does not reflect yet, newest first."""
        missing = []
        for commit in reversed(self._commits):
            if job.watermark is not None and commit.snapshot <= job.watermark:
                break
            if set(commit.tables) & set(job.sources):
                missing.append(commit)
        return missing

    def _rate(self, span: float = 5.0) -> float:
        if not self._commits:
            return 0.0
        now = time.time()
        span = max(0.5, min(span, now - self._commits[0].at))
        return sum(commit.at > now - span for commit in self._commits[-500:]) / span

    def _read_history(self) -> None:
        for done in reversed(self._lake.jobs.history(limit=100)):
            key = (done.job_id, done.started_at)
            if key not in self._seen and _counts(done, self._since):
                self._seen.add(key)
                self._refreshes.setdefault(done.job_id, []).append(done)

    def _count(self, some: Sequence[Derived]) -> None:
        began = time.monotonic()
        for derived in some:
            if derived in INDEXES:
                continue  # a search tells
            if self._rows.get(derived.name, 0) <= _MOST_COUNTED:
                rows = rows_of(self._lake, derived)
                self._rows[derived.name] = rows.num_rows
                if derived.name == CITIES:
                    ordered = rows.sort_by([("revenue", "descending")]).to_pylist()
                    self._cities = tuple((row["city"], float(row["revenue"])) for row in ordered)
        took = time.monotonic() - began
        self._count_at = time.monotonic() + max(0.5, took * _SPARE)


def refreshes(
    lake: Lake, derived: Derived, commits: Sequence[Commit], *, since: datetime, until: datetime
) -> Refreshes:
    """All refreshes of one object between two moments, from the job's own history."""
    history = lake.jobs.history(*derived.job, limit=1_000_000)
    done = [one for one in reversed(history) if _counts(one, since) and one.ended_at <= until]
    sources = set(lake.jobs.status(*derived.job).sources)
    return Refreshes(
        count=len(done),
        seconds=sum(one.seconds for one in done),
        strategies=dict(Counter(str(one.strategy) for one in done).most_common()),
        delays=tuple(_delays([c for c in commits if sources & set(c.tables)], done)),
    )


def _counts(done: Iteration, since: datetime) -> bool:
    """Whether it is a refresh of this run, and not a build or a try that failed."""
    return done.error is None and done.from_snapshot is not None and done.started_at >= since


def _delays(commits: Sequence[Commit], done: Sequence[Iteration]) -> list[float]:
    """For each commit, the seconds until a refresh with it had ended; both are in order."""
    delays, rest = [], iter(done)
    current = next(rest, None)
    for commit in commits:
        while current is not None and current.to_snapshot < commit.snapshot:
            current = next(rest, None)
        if current is None:
            break
        delays.append(max(0.0, current.ended_at.timestamp() - commit.at))
    return delays
