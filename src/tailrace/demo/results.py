"""What came of it: everything derived is compared with a recompute, and so is what it took.

A recompute is what one does without views: the query in plain Spark SQL, its rows written as
Parquet. It reads the shop as it was when the live part began, in few large files, and of a view
what was stored before: that is the best case for it. An index is built anew from all rows that its
table has now.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from tailrace.demo.derived import ALL, Derived, Replica, SearchIndex
from tailrace.demo.freshness import Refreshes, rows_of
from tailrace.demo.searches import ASKED, Search, compare, search
from tailrace.demo.shop import SCHEMA, TABLES
from tailrace.demo.writer import Commit
from tailrace.store.spark_session import is_classic

if TYPE_CHECKING:
    from tailrace.lake import Lake


# Most of a small comparison is planning: two at a time keep two cores busy.
_AT_ONCE = 2
# Searches of the live part that are checked, for each index: each looks at every row.
_SEARCHES = 10


@dataclass(frozen=True, kw_only=True)
class Check:
    """What came of one comparison."""

    name: str
    watermark: int
    rows: int
    missing: int
    extra: int
    details: str = ""  # what differs, if anything does
    searches: int = 0  # that were compared

    @property
    def ok(self) -> bool:
        return not self.details


def check_all(lake: Lake, searches: Sequence[Search] = ()) -> list[Check]:
    """Check each derived object; a difference is in the result, not raised.

    `searches` were made earlier: some of them are checked, too, each at its own snapshot.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tailrace-check")
    try:
        return list(pool.map(lambda derived: _check(lake, derived, searches), ALL))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for Spark


def _check(lake: Lake, derived: Derived, searches: Sequence[Search]) -> Check:
    if isinstance(derived, SearchIndex):
        return _check_index(lake, derived, searches)
    if isinstance(derived, Replica):
        return _check_replica(lake, derived)
    report = lake.view(derived.name).verify()
    return Check(
        name=derived.name,
        watermark=report.watermark,
        rows=report.rows,
        missing=report.missing,
        extra=report.extra,
        details="" if report.ok else str(report),
    )


def _check_replica(lake: Lake, replica: Replica) -> Check:
    """The copy's rows against its source's, at the snapshot that the copy reflects."""
    watermark = lake.jobs.status(*replica.job).watermark
    assert watermark is not None  # it is fresh
    wanted = lake.table(replica.source).to_df(at=watermark).where(replica.where)
    copied = lake.table(replica.name).to_df()
    missing, extra = wanted.exceptAll(copied).count(), copied.exceptAll(wanted).count()
    return Check(
        name=replica.name,
        watermark=watermark,
        rows=rows_of(lake, replica).num_rows,
        missing=missing,
        extra=extra,
        details=f"{missing} rows missing, {extra} too many" if missing or extra else "",
    )


def _check_index(lake: Lake, index: SearchIndex, searches: Sequence[Search]) -> Check:
    """What it finds now, and found in the live part, against a look at every row."""
    own = [one for one in searches if one.index is index]
    some = own[:: max(1, -(-len(own) // _SEARCHES))]
    newest = [search(lake, index, asked) for asked in ASKED[index]]
    missing, extra = 0, 0
    wrong = []
    for one in (*newest, *some):
        lacks, has = compare(lake, one)
        missing, extra = missing + lacks, extra + has
        if lacks or has:
            wrong.append(f"{one.asked} at {one.snapshot}: {lacks} missing, {has} too many")
    return Check(
        name=index.name,
        watermark=newest[-1].snapshot,
        rows=newest[-1].rows,
        missing=missing,
        extra=extra,
        details="; ".join(wrong[:3]),
        searches=len(newest) + len(some),
    )


_PREFIX = "tailrace_demo_"  # of the temporary views' names


class Recomputes:
    """Computes derived objects anew, as one does without views, until closed."""

    def __init__(self, lake: Lake, directory: str, *, at: int) -> None:
        """`at` is the snapshot of the tables that are read; rows go to the directory."""
        self._lake, self._directory, self._done = lake, directory, 0
        for table in TABLES:
            lake.table(table).to_df(at=at).createOrReplaceTempView(_named(table))

    def run(self, derived: Derived) -> float:
        """Compute one of them; returns how many seconds that took."""
        began = time.monotonic()
        if isinstance(derived, SearchIndex):
            self._lake.index(*derived.job).rebuild()
            return time.monotonic() - began
        self._done += 1
        place = f"{self._directory}/{self._done}"
        self._lake.spark.sql(_named(derived.query)).write.parquet(place)
        took = time.monotonic() - began
        # What reads a view reads what was stored of it.
        self._lake.spark.read.parquet(place).createOrReplaceTempView(_named(derived.name))
        return took

    def close(self) -> None:
        """Drop the temporary views."""
        for name in (*TABLES, *(one.name for one in ALL)):
            self._lake.spark.catalog.dropTempView(_named(name))


def cpu_seconds(lake: Lake) -> float:
    """CPU time of this process, without the calling thread, and of its Spark in local mode."""
    own = time.process_time() - time.thread_time()
    if not is_classic(lake.spark):
        return own
    java = lake.spark.sparkContext._jvm
    assert java is not None
    spent = java.java.lang.ProcessHandle.current().info().totalCpuDuration()
    return own + float(spent.get().toMillis()) / 1000


def _named(text: str) -> str:
    """A query of ours, or a name, with what it reads named as here."""
    return text.replace(f"{SCHEMA}.", _PREFIX)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What some work took."""

    seconds: float
    cpu_seconds: float  # Spark's included


@dataclass(frozen=True, kw_only=True)
class Live:
    """What happened in the live part."""

    since: datetime
    until: datetime
    seconds: float  # of the writer's commits
    cpu_seconds: float  # of all that keeps the derived objects fresh
    commits: tuple[Commit, ...]
    searches: tuple[Search, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one derived object at the end."""

    derived: Derived
    check: Check
    refreshes: Refreshes
    recompute: Cost  # once
    search_seconds: float | None = None  # of an index: what a search took in the live part

    @property
    def recompute_every_time(self) -> float:
        """What recomputing instead of each refresh would have taken."""
        return self.refreshes.count * self.recompute.seconds

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        done = self.refreshes
        searched: dict[str, Any] = {}
        if self.check.searches:
            searched["searches_checked"] = self.check.searches
        if self.search_seconds is not None:
            searched["search_seconds"] = round(self.search_seconds, 4)
        return {
            "name": self.derived.name,
            "what": self.derived.what,
            "rows": self.check.rows,
            "watermark": self.check.watermark,
            "ok": self.check.ok,
            "missing": self.check.missing,
            "extra": self.check.extra,
            "refreshes": done.count,
            "refresh_seconds": round(done.seconds, 3),
            "strategies": done.strategies,
            "delay_seconds": round(median(done.delays), 3) if done.delays else None,
            "longest_delay_seconds": round(max(done.delays), 3) if done.delays else None,
            "recompute_seconds": round(self.recompute.seconds, 3),
            "recompute_cpu_seconds": round(self.recompute.cpu_seconds, 3),
            "recompute_every_time_seconds": round(self.recompute_every_time, 3),
            **searched,
        }


def cpu_instead(results: Sequence[Result]) -> float:
    """The CPU time that recomputing instead of each refresh would have taken."""
    return sum(result.refreshes.count * result.recompute.cpu_seconds for result in results)


def delays_at_each_change(results: Sequence[Result]) -> list[float]:
    """The delays of what is refreshed at each change: others wait by their trigger."""
    prompt = [result.refreshes for result in results if not result.derived.interval]
    return [delay for refreshes in prompt for delay in refreshes.delays]


def document(
    *,
    results: Sequence[Result],
    live: Live,
    lake: str | None,
    is_new: bool,
    rows: dict[str, int],
    began_at: int,
    seconds: float,
) -> dict[str, Any]:
    """All of it, as one document."""
    delays = delays_at_each_change(results)
    return {
        "ok": all(result.check.ok for result in results),
        "lake": lake,  # None if it was temporary
        "is_new": is_new,
        "began_at_snapshot": began_at,
        "rows": rows,
        "live_seconds": round(live.seconds, 1),
        "seconds": round(seconds, 1),
        "commits": {"count": len(live.commits), **Counter(commit.kind for commit in live.commits)},
        "delay_seconds": round(median(delays), 3) if delays else None,
        "refresh_cpu_seconds": round(live.cpu_seconds, 3),
        "recompute_every_time_cpu_seconds": round(cpu_instead(results), 3),
        "derived": [result.to_dict() for result in results],
    }
