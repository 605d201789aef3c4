"""Measures what it takes to compute everything anew.

A recompute is what one does without views: the query in plain Spark SQL, its rows written as
Parquet. It reads the shop as it was when the live part began, in few large files: that is the best
case for it. An index is built anew from all rows that its table has now. Each runs once to warm
up, and once to be counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tailrace.demo.derived import ALL, VIEWS, Derived, SearchIndex
from tailrace.demo.shop import SCHEMA, TABLES

if TYPE_CHECKING:
    from tailrace.lake import Lake

_PREFIX = "tailrace_demo_"  # of the temporary views' names


def recompute_seconds(lake: Lake, *, at: int) -> dict[str, float]:
    """How long one recompute of each derived object takes, at a snapshot."""
    spark = lake.spark
    for table in TABLES:
        lake.table(table).to_df(at=at).createOrReplaceTempView(_named(table))
    for view in VIEWS:  # a view that others read is a query here: nothing of it is stored
        spark.sql(_named(view.query)).createOrReplaceTempView(_named(view.name))
    try:
        with TemporaryDirectory(prefix="tailrace-demo-") as directory:
            return {derived.name: _measured(lake, derived, Path(directory)) for derived in ALL}
    finally:
        for name in (*TABLES, *(view.name for view in VIEWS)):
            spark.catalog.dropTempView(_named(name))


def _measured(lake: Lake, derived: Derived, directory: Path) -> float:
    seconds = 0.0
    for turn in range(2):
        began = time.monotonic()
        if isinstance(derived, SearchIndex):
            lake.index(*derived.job).rebuild()
        else:
            rows = lake.spark.sql(_named(derived.query))
            rows.write.parquet(str(directory / f"{derived.name}-{turn}"))
        seconds = time.monotonic() - began
    return seconds


def _named(text: str) -> str:
    """A query of ours, or a name, with what it reads named as here."""
    return text.replace(f"{SCHEMA}.", _PREFIX)
