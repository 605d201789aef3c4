"""The change feed: what was inserted and deleted in (since, until].

The law: rows at `since`, minus the deletes, plus the inserts, are the rows at `until`, as bags;
and no row is inserted or deleted twice. A net feed leaves out what came and went inside the range
and, on a table with a key, a delete and an insert of the same image.

The plan comes from the catalog and the delete files; small feeds are then read by the driver, row
groups without a change not at all; large ones by Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from tailrace.errors import InvalidError
from tailrace.store import file_lookup, lookup
from tailrace.store.deletes import NOTHING, Deleted, Positions
from tailrace.store.files import DataFile, Op
from tailrace.store.images import same_rows
from tailrace.store.parallel import each
from tailrace.store.runtime import Runtime
from tailrace.store.scan import read_file
from tailrace.store.schema import CHANGE, SNAPSHOT, TableInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INSERT, DELETE = "insert", "delete"
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class WholeFile:
    """All rows of a file but some were inserted, or deleted, by one snapshot."""

    file: DataFile
    change: str
    snapshot: int
    without: Positions

    @property
    def rows(self) -> int:
        return self.file.rows - len(self.without)


@dataclass(frozen=True, kw_only=True)
class DeletedRows:
    """Some rows of a file were deleted, each by its own snapshot."""

    file: DataFile
    deleted: Deleted

    @property
    def rows(self) -> int:
        return len(self.deleted.positions)

    def groups(self, group_rows: int) -> int:
        """About how many row groups hold one of them."""
        return len(np.unique(self.deleted.positions // group_rows))


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The plan of a change feed."""

    table: TableInfo
    whole: tuple[WholeFile, ...]
    some: tuple[DeletedRows, ...]
    net: bool

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.whole) + sum(p.rows for p in self.some)

    @property
    def only_inserts(self) -> bool:
        """Whether nothing was deleted, so that nobody needs to look for it."""
        return not self.some and all(part.change == INSERT for part in self.whole)

    @property
    def may_cancel(self) -> bool:
        """Whether a delete and an insert of one key can both be in it."""
        changes = {part.change for part in self.whole} | ({DELETE} if self.some else set())
        return self.net and bool(self.table.key) and len(changes) == 2

    @property
    def bytes_held(self) -> int:
        """About how many bytes of Parquet its rows are."""
        some = sum(part.file.size * part.rows // max(1, part.file.rows) for part in self.some)
        return sum(part.file.size for part in self.whole) + some

    def rows_read(self, group_rows: int) -> int:
        """How many rows are decoded: of deletes, whole row groups, one at a time."""
        some = sum(min(part.groups(group_rows) * group_rows, part.file.rows) for part in self.some)
        return sum(part.file.rows for part in self.whole) + some

    def bytes_read(self, group_rows: int) -> int:
        """About how many bytes of Parquet must be read."""
        total = sum(part.file.size for part in self.whole)
        for part in self.some:
            groups = -(-part.file.rows // group_rows)
            total += part.file.size * part.groups(group_rows) // groups
        return total


def plan(
    runtime: Runtime,
    connection: sa.Connection,
    table: TableInfo,
    since: int,
    until: int,
    *,
    net: bool,
) -> Feed:
    """Find the changes; reads the catalog and delete files only."""
    lookup.check_snapshot(connection, since)
    lookup.check_snapshot(connection, until)
    if since > until:
        raise InvalidError(f"changes(since={since}, until={until}): since must not be after until")
    whole: list[WholeFile] = []
    some: list[DeletedRows] = []
    for file in file_lookup.files_begun(connection, table, since, until):
        dead = runtime.deletes.read(file.deletes).at(until) if net else NOTHING.positions
        gone = net and file.end is not None and file.end <= until
        if file.op is not Op.COMPACTION and not gone and len(dead) < file.rows:
            whole.append(WholeFile(file=file, change=INSERT, snapshot=file.begin, without=dead))
    for file in file_lookup.files_with_deletes(connection, table, since, until):
        if net and file.begin > since:
            continue
        deleted = runtime.deletes.read(file.deletes)
        within = deleted.within(since, until)
        if len(within.positions):
            some.append(DeletedRows(file=file, deleted=within))
        if file.end is not None and since < file.end <= until:
            before = deleted.at(file.end)
            whole.append(WholeFile(file=file, change=DELETE, snapshot=file.end, without=before))
    return Feed(table=table, whole=tuple(whole), some=tuple(some), net=net)


def is_small(runtime: Runtime, feed: Feed, most: int | None = None) -> bool:
    """Whether the driver may read a feed itself: by what it holds in the end, and looks at.

    `most`: rows, if not as many as the driver usually reads.
    """
    limits = runtime.settings
    return feed.rows == 0 or (
        feed.rows <= (limits.local_rows if most is None else most)
        and feed.bytes_held <= limits.local_bytes
        and feed.rows_read(limits.row_group_rows) <= limits.local_keys
    )


def to_arrow(runtime: Runtime, feed: Feed) -> pa.Table:
    """A small feed: `_change`, `_snapshot`, then the table's columns."""
    columns = feed.table.columns
    # Every column may be NULL in the feed: a row may be older than a column.
    plain = pa.schema([pa.field(c.name, c.type) for c in columns])
    nothing = _marked(plain.empty_table(), INSERT, np.empty(0, np.int64))

    def read(part: WholeFile | DeletedRows) -> pa.Table:
        if isinstance(part, WholeFile):
            rows = read_file(runtime.storage, part.file, columns, without=part.without)
            snapshots = np.full(rows.num_rows, part.snapshot)
            return _marked(rows, part.change, snapshots).cast(nothing.schema)
        rows = read_file(runtime.storage, part.file, columns, only=part.deleted.positions)
        return _marked(rows, DELETE, part.deleted.snapshots).cast(nothing.schema)

    parts: list[WholeFile | DeletedRows] = [*feed.whole, *feed.some]
    table = pa.concat_tables([nothing, *each(read, parts)])
    return _without_equal_images(table, feed.table) if feed.may_cancel else table


def _marked(rows: pa.Table, change: str, snapshots: npt.NDArray[np.int64]) -> pa.Table:
    marks = [pa.repeat(change, rows.num_rows), pa.array(snapshots, pa.int64())]
    schema = pa.schema(
        [pa.field(CHANGE, pa.string()), pa.field(SNAPSHOT, pa.int64()), *rows.schema]
    )
    return pa.table([*marks, *rows.columns], schema=schema)


def _without_equal_images(feed: pa.Table, table: TableInfo) -> pa.Table:
    """In a net feed a key is deleted at most once and inserted at most once."""
    is_delete = pc.equal(feed.column(CHANGE), DELETE).to_numpy()
    keys = [feed.column(column.name) for column in table.key_columns]
    left, right = _pairs(keys, is_delete)
    own = {column.name for column in table.key_columns}
    for name in feed.column_names[2:]:
        if name not in own and len(left):
            images = feed.select([name])
            same = same_rows(images.take(left), images.take(right))
            left, right = left[same], right[same]
    keep = np.ones(feed.num_rows, bool)
    keep[left] = keep[right] = False
    return feed.filter(pa.array(keep))


def _pairs(keys: list[pa.ChunkedArray], is_delete: Flags) -> tuple[Positions, Positions]:
    """The places of deletes, and of the inserts with the same keys."""
    numbers = _as_numbers(keys)
    if numbers is not None:
        deletes, inserts = np.flatnonzero(is_delete), np.flatnonzero(~is_delete)
        deletes = deletes[np.argsort(numbers[deletes])]
        ordered = numbers[deletes]
        at = np.minimum(np.searchsorted(ordered, numbers[inserts]), max(0, len(deletes) - 1))
        found = ordered[at] == numbers[inserts] if len(deletes) else np.zeros(len(inserts), bool)
        return deletes[at[found]], inserts[found]
    # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
    names = [str(number) for number in range(len(keys))]
    numbered = pa.table([*keys, np.arange(len(is_delete))], names=[*names, "_row"])
    gone = numbered.filter(pa.array(is_delete))
    came = numbered.filter(pa.array(~is_delete)).rename_columns([*names, "_other"])
    pairs = gone.join(came, keys=names, join_type="inner")
    return pairs.column("_row").to_numpy(), pairs.column("_other").to_numpy()


def _as_numbers(keys: list[pa.ChunkedArray]) -> npt.NDArray[np.int64] | None:
    """A number for each key, if keys are whole numbers that leave room for that."""
    made: npt.NDArray[np.int64] | None = None
    room = 1
    for key in keys:
        if not pa.types.is_integer(key.type) or key.null_count or not len(key):
            return None
        values = key.to_numpy().astype(np.int64)
        low, high = int(values.min()), int(values.max())
        room *= high - low + 1
        if room >= 2**63:
            return None
        made = values - low if made is None else made * (high - low + 1) + (values - low)
    return made


def to_df(runtime: Runtime, feed: Feed) -> DataFrame:
    """A feed of any size."""
    from tailrace.store import spark_changes
    from tailrace.store.spark_scan import local_frame

    if is_small(runtime, feed):
        return local_frame(runtime, to_arrow(runtime, feed))
    return spark_changes.to_df(runtime, feed)
