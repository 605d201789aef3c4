"""A change feed read by Spark, for feeds that are too large for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tailrace.spark_sql import types
from tailrace.store.changes import DELETE, Feed, FileDelta
from tailrace.store.files import to_words
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget
from tailrace.store.schema import CHANGE, FILE, HIDDEN, POS, SNAPSHOT, STORE_PREFIX, Column
from tailrace.store.spark_scan import (
    BITS,
    deleted_places,
    keep_unmarked,
    load,
    local_frame,
    name_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# More ranges than this make a filter slower than the row groups it would skip.
_RANGES = 64
# The columns that the images of a key before and after are compared in.
_OLD, _NEW = f"{STORE_PREFIX}old", f"{STORE_PREFIX}new"


def to_df(runtime: Runtime, feed: Feed) -> DataFrame:
    """`_change`, `_snapshot`, then the table's columns; lazy."""
    parts = []
    whole = [delta for delta in feed.deltas if delta.is_whole]
    some = [delta for delta in feed.deltas if not delta.is_whole]
    if whole:
        parts.append(_whole(runtime, whole, feed.table.columns))
    if some:
        parts.append(_some(runtime, some, feed.table.columns))
    changes = reduce(lambda one, other: one.unionAll(other), parts)
    return _without_equal_images(changes, feed) if feed.may_cancel else changes


def _whole(runtime: Runtime, deltas: Sequence[FileDelta], columns: Sequence[Column]) -> DataFrame:
    from pyspark.sql import functions as F

    words = [to_words(delta.rows.dead) for delta in deltas]
    files = {delta.rows.file.key: delta.rows.file for delta in deltas}
    facts = {
        FILE: [delta.rows.file.key for delta in deltas],
        CHANGE: [delta.change for delta in deltas],
        SNAPSHOT: [delta.snapshots for delta in deltas],
        BITS: pa.array(words, types.list_of(pa.int64())),
    }
    data = load(runtime, list(files.values()), [*columns, *HIDDEN])
    return _marked(
        keep_unmarked(data.join(F.broadcast(local_frame(runtime, pa.table(facts))), FILE)), columns
    )


def _some(runtime: Runtime, deltas: Sequence[FileDelta], columns: Sequence[Column]) -> DataFrame:
    from pyspark.sql import functions as F

    files = [delta.rows.file for delta in deltas]
    data = load(runtime, files, [*columns, *HIDDEN])
    near = _near(deltas, runtime.settings.row_group_rows)
    if near is not None:
        data = data.where(near)
    snapshots = np.concatenate([delta.snapshots for delta in deltas])
    if Budget.of(runtime.settings).covers_search(len(snapshots)):
        known = {
            FILE: np.concatenate([np.full(d.rows.rows, d.rows.file.key) for d in deltas]),
            POS: np.concatenate([delta.rows.positions() for delta in deltas]),
            SNAPSHOT: snapshots,
        }
        places = local_frame(runtime, pa.table(known))
    else:
        low, high = int(snapshots.min()), int(snapshots.max())
        places = deleted_places(runtime, files)
        places = places.where(F.col(SNAPSHOT).between(low, high))
    found = data.join(places, [FILE, POS]).withColumn(CHANGE, F.lit(DELETE))
    return _marked(found, columns)


def _near(deltas: Sequence[FileDelta], group_rows: int) -> str | None:
    """A filter that lets Parquet skip the row groups that hold none of the rows."""
    ranges = []
    for delta in deltas:
        groups = np.unique(delta.rows.positions() // group_rows)
        # Neighbouring groups are one range.
        for run in np.split(groups, np.flatnonzero(np.diff(groups) > 1) + 1):
            low, high = int(run[0]) * group_rows, (int(run[-1]) + 1) * group_rows
            ranges.append(f"({FILE} = {delta.rows.file.key} AND {POS} >= {low} AND {POS} < {high})")
            if len(ranges) > _RANGES:
                return None
    return " OR ".join(ranges)


def _marked(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    from pyspark.sql import functions as F

    marks = [F.col(CHANGE), F.col(SNAPSHOT).cast("bigint").alias(SNAPSHOT)]
    return rows.select(*marks, *name_columns(columns))


def _without_equal_images(changes: DataFrame, feed: Feed) -> DataFrame:
    """In a net feed a key is deleted at most once and inserted at most once."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = [F.col(types.quote(c.name)) for c in feed.table.key_columns]
    image = F.struct(*(_comparable(c).alias(f"c{c.id}") for c in feed.table.columns))
    deleted = F.col(CHANGE) == DELETE
    window = Window.partitionBy(*key)
    old = F.first(F.when(deleted, image), ignorenulls=True).over(window)
    new = F.first(F.when(~deleted, image), ignorenulls=True).over(window)
    both = changes.withColumns({_OLD: old, _NEW: new})
    return both.where(~F.col(_OLD).eqNullSafe(F.col(_NEW))).drop(_OLD, _NEW)


def _comparable(column: Column):  # type: ignore[no-untyped-def]
    """Maps have no equality in Spark, and floats one that takes -0.0 for 0.0: compare text."""
    from pyspark.sql import functions as F

    name = F.col(types.quote(column.name))
    if _has_text_equality(column.type):
        return F.to_json(F.struct(name.alias("v")))
    return name


def _has_text_equality(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_floating(kind):
        return True
    return any(_has_text_equality(child.type) for child in types.children_of(kind))
