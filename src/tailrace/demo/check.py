"""Compares everything that was derived with what is computed anew: by Spark, or row by row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.demo.derived import ALL, Derived, Replica, SearchIndex
from tailrace.demo.searches import ASKED, Search, compare, search

if TYPE_CHECKING:
    from tailrace.lake import Lake

# Most of a small comparison is planning: two at a time keep two cores busy.
_AT_ONCE = 2
# Searches of the live part that are looked at again, of each index: all rows for each.
_SEARCHES = 10


@dataclass(frozen=True, kw_only=True)
class Check:
    """What came of one comparison."""

    name: str
    ok: bool
    watermark: int
    rows: int
    missing: int
    extra: int
    seconds: float
    details: str  # rows that differ, if there are
    searches: int = 0  # that were compared


def check_all(lake: Lake, searches: Sequence[Search] = ()) -> list[Check]:
    """Check each derived object; what differs is in the results, and not raised.

    `searches` were made before: some of them are checked, too, each at its own snapshot.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tailrace-check")
    try:
        return list(pool.map(lambda derived: _check(lake, derived, searches), ALL))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for Spark


def _check(lake: Lake, derived: Derived, searches: Sequence[Search]) -> Check:
    began = time.monotonic()
    if isinstance(derived, SearchIndex):
        return _check_index(lake, derived, searches, began)
    if isinstance(derived, Replica):
        return _check_replica(lake, derived, began)
    report = lake.view(derived.name).verify()
    return Check(
        name=derived.name,
        ok=report.ok,
        watermark=report.watermark,
        rows=report.rows,
        missing=report.missing,
        extra=report.extra,
        seconds=time.monotonic() - began,
        details="" if report.ok else str(report),
    )


def _check_replica(lake: Lake, replica: Replica, began: float) -> Check:
    """The copy's rows against its source's, of the snapshot that the copy reflects."""
    from pyspark.sql import functions as F

    watermark = lake.jobs.status(*replica.job).watermark
    assert watermark is not None  # it is fresh
    want = lake.table(replica.source).to_df(at=watermark).where(replica.where)
    have = lake.table(replica.name).to_df()
    marked = want.withColumn("_n", F.lit(1)).unionAll(have.withColumn("_n", F.lit(-1)))
    # Each row, as often as the one has it more than the other.
    differs = F.sum("_n").alias("_n")
    counted = (
        marked.groupBy(*have.columns)
        .agg(differs, F.count_if(F.col("_n") < 0).alias("_had"))
        .agg(
            F.sum("_had"),
            F.sum(F.when(F.col("_n") > 0, F.col("_n")).otherwise(0)),
            F.sum(F.when(F.col("_n") < 0, -F.col("_n")).otherwise(0)),
        )
    ).collect()[0]
    rows, missing, extra = (int(number or 0) for number in counted)
    return Check(
        name=replica.name,
        ok=not missing and not extra,
        watermark=watermark,
        rows=rows,
        missing=missing,
        extra=extra,
        seconds=time.monotonic() - began,
        details="" if not missing and not extra else f"{missing} rows missing, {extra} too many",
    )


def _check_index(lake: Lake, index: SearchIndex, searches: Sequence[Search], began: float) -> Check:
    """What it finds, now and in the live part, against a look at every row."""
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
        ok=not wrong,
        watermark=newest[-1].snapshot,
        rows=newest[-1].rows,
        missing=missing,
        extra=extra,
        seconds=time.monotonic() - began,
        details="; ".join(wrong[:3]),
        searches=len(newest) + len(some),
    )
