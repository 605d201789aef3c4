"""Compares everything that was derived with what Spark computes anew."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.demo.derived import ALL, Derived, Replica

if TYPE_CHECKING:
    from tailrace.lake import Lake

# Most of a small comparison is planning: two at a time keep two cores busy.
_AT_ONCE = 2


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


def check_all(lake: Lake) -> list[Check]:
    """Check each derived object; what differs is in the results, and not raised."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tailrace-check")
    try:
        return list(pool.map(lambda derived: _check(lake, derived), ALL))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for Spark


def _check(lake: Lake, derived: Derived) -> Check:
    began = time.monotonic()
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
