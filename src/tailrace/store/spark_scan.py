"""A table's rows at a snapshot, or its changes in a range, as a Spark DataFrame.

Always true: files are named, never listed; only files with deletes pay for masking; nothing
depends on session settings that are looked at when the DataFrame runs. The result is lazy and
starts no job.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tailrace.errors import CorruptError
from tailrace.objects import Storage
from tailrace.spark_sql import types
from tailrace.store.changes import DELETE, Feed, FileDelta
from tailrace.store.deletes import PATH_FIELD, POS_FIELD, SNAPSHOT_FIELD
from tailrace.store.files import DataFile, Op, to_words
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, LiveFile, Scan
from tailrace.store.schema import CHANGE, FILE, HIDDEN, POS, SNAPSHOT, STORE_PREFIX, Column

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


# Options that pin what session settings would otherwise decide.
_READ_OPTIONS = {
    "mergeSchema": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Dates before 1582 are meant as they are written.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# The column that a file's bitmap of deleted rows is joined as.
BITS = f"{STORE_PREFIX}bits"
# The bit of a row in the bitmap of its file; past the bitmap's end there are only zeros.
_BIT = (
    f"shiftright(coalesce(get({BITS}, cast({POS} div 64 as int)), 0L), cast({POS} % 64 as int)) & 1"
)


def to_df(runtime: Runtime, scan: Scan, *, places: bool = False) -> DataFrame:
    """The rows under the columns' names; with `places`, also `_file` and `_pos`."""
    columns = [*scan.table.columns, *(HIDDEN if places else ())]
    plain = [live.file for live in scan.files if not live.has_deletes]
    masked = [live for live in scan.files if live.has_deletes]
    parts = []
    if plain:
        parts.append(load(runtime, plain, columns).select(*name_columns(columns)))
    if masked:
        parts.append(_masked(runtime, scan.at, masked, columns))
    if not parts:
        schema = pa.schema([(c.name, c.type) for c in columns])
        return local_frame(runtime, schema.empty_table())
    result = parts[0]
    for part in parts[1:]:
        result = result.unionAll(part)
    return result


def _masked(
    runtime: Runtime, at: int, files: Sequence[LiveFile], columns: Sequence[Column]
) -> DataFrame:
    from pyspark.sql import functions as F

    needed = list(dict.fromkeys([*columns, *HIDDEN]))
    data = load(runtime, [live.file for live in files], needed)
    own_deletes = any(len(live.removed) for live in files)
    if own_deletes or sum(live.file.rows for live in files) <= runtime.settings.bitmap_rows:
        words = [to_words(live.dead(runtime, at)) for live in files]
        bits = pa.array(words, types.list_of(pa.int64()))
        keys = [live.file.key for live in files]
        bitmaps = local_frame(runtime, pa.table({FILE: keys, BITS: bits}))
        kept = keep_unmarked(data.join(F.broadcast(bitmaps), FILE))
    else:
        gone = deleted_places(runtime, [live.file for live in files])
        kept = data.join(gone.where(F.col(SNAPSHOT) <= at), [FILE, POS], "left_anti")
    return kept.select(*name_columns(columns))


def keep_unmarked(rows: DataFrame) -> DataFrame:
    """The rows whose bit in the bitmap of their file, `BITS`, is not set."""
    return rows.where(f"({_BIT}) = 0")


def deleted_places(runtime: Runtime, files: Sequence[DataFile]) -> DataFrame:
    """`_file`, `_pos` and `_snapshot` of every delete of these files, read by Spark."""
    from pyspark.sql import functions as F

    spark, storage = runtime.spark(), runtime.storage
    # By the objects' own names: those are unique, and a lake's directory may have been moved.
    facts = {
        PATH_FIELD: [posixpath.basename(file.path) for file in files],
        FILE: [file.key for file in files],
        "_begin": [file.deletes.begin if file.deletes else -1 for file in files],
    }
    keys = local_frame(runtime, pa.table(facts))
    schema = f"{PATH_FIELD} string, {POS_FIELD} bigint, {SNAPSHOT_FIELD} bigint"
    paths = [file.deletes.path for file in files if file.deletes]
    # A delete file of a single snapshot doesn't repeat it for each position.
    return (
        _read(spark, storage, paths, schema)
        .withColumn(PATH_FIELD, F.substring_index(PATH_FIELD, "/", -1))
        .join(F.broadcast(keys), PATH_FIELD)
        .selectExpr(
            FILE, f"{POS_FIELD} as {POS}", f"coalesce({SNAPSHOT_FIELD}, _begin) as {SNAPSHOT}"
        )
    )


def local_frame(runtime: Runtime, rows: pa.Table) -> DataFrame:
    """Arrow rows of canonical types as a DataFrame.

    The schema is spelled out, because Spark would read a timestamp without a zone as one with;
    and there is at least one batch, because Spark takes no nested column without.
    """
    batches = rows.combine_chunks().to_batches() or [
        pa.RecordBatch.from_arrays([pa.array([], f.type) for f in rows.schema], schema=rows.schema)
    ]
    table = pa.Table.from_batches(batches)
    return runtime.spark().createDataFrame(table, types.spark_schema(table.schema))


def load(runtime: Runtime, files: Sequence[DataFile], columns: Sequence[Column]) -> DataFrame:
    """The files' rows under the columns' physical names."""
    schema = types.spark_schema(pa.schema([(c.physical, c.type) for c in columns]))
    return _read(runtime.spark(), runtime.storage, [file.path for file in files], schema)


def _read(spark: SparkSession, storage: Storage, paths: list[str], schema: str) -> DataFrame:
    if storage.local is None:
        from tailrace.store.source import load_objects  # it imports PySpark

        return load_objects(spark, storage, paths, schema)
    from pyspark.errors import AnalysisException

    reader = spark.read.schema(schema).options(**_READ_OPTIONS)
    try:
        return reader.parquet(*(f"file://{_escape(storage.uri(path))}" for path in paths))
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise CorruptError(f"an object is missing: {error.getMessageParameters()}") from error
        raise


def name_columns(columns: Sequence[Column]) -> list[SparkColumn]:
    """Physical columns under the names that users know."""
    from pyspark.sql import functions as F

    return [F.col(types.quote(c.physical)).alias(c.name) for c in columns]


def _escape(path: str) -> str:
    """A path that Spark takes literally: it reads these characters as a pattern."""
    return "".join(f"\\{c}" if c in "\\*?[]{}," else c for c in path)


# More ranges than this make a filter slower than the row groups it would skip.
_RANGES = 64
# The columns that the images of a key before and after are compared in.
_OLD, _NEW = f"{STORE_PREFIX}old", f"{STORE_PREFIX}new"


def feed_to_df(runtime: Runtime, feed: Feed) -> DataFrame:
    """A change feed: `_change`, `_snapshot`, then the table's columns."""
    parts = []
    whole = [delta for delta in feed.deltas if delta.is_whole]
    some = [delta for delta in feed.deltas if not delta.is_whole]
    # Not all deletes of a compaction's file are its own: those that are have to be named.
    named = [delta for delta in some if delta.rows.file.op is Op.COMPACTION]
    some = [delta for delta in some if delta.rows.file.op is not Op.COMPACTION]
    if whole:
        parts.append(_whole(runtime, whole, feed.table.columns))
    if some:
        parts.append(_some(runtime, some, feed.table.columns))
    if named:
        parts.append(_some(runtime, named, feed.table.columns, named=True))
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


def _some(
    runtime: Runtime,
    deltas: Sequence[FileDelta],
    columns: Sequence[Column],
    *,
    named: bool = False,
) -> DataFrame:
    """Deleted rows; `named`: however many they are, by their positions, not by their snapshots."""
    from pyspark.sql import functions as F

    files = [delta.rows.file for delta in deltas]
    data = load(runtime, files, [*columns, *HIDDEN])
    near = _near(deltas, runtime.settings.row_group_rows)
    if near is not None:
        data = data.where(near)
    snapshots = np.concatenate([delta.snapshots for delta in deltas])
    if named or Budget.of(runtime.settings).covers_search(len(snapshots)):
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
