"""Compares everything that was derived with a recompute, by Spark or row by row."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.demo.derived import ALL, Derived, Replica, SearchIndex
from tailrace.demo.freshness import rows_of
from tailrace.demo.searches import ASKED, Search, compare, search

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
