"""The change feed: what was inserted and deleted in (since, until].

Compaction is no change: a row that moves to another file keeps its id, and is in the feed where it
came in, as long as its first file is in the catalog, or where it was deleted.

The law: rows at `since`, minus the deletes, plus the inserts, are the rows at `until`, as bags;
and no row is inserted or deleted twice. A net feed leaves out what came and went inside the range
and, on a table with a key, a delete and an insert of the same image.

The plan comes from the catalog and the delete files; small feeds are then read by the driver, row
groups without a change not at all; large ones by Spark. The feed is of committed snapshots;
`difference` compares the files and deletes of any two states of a table.

Two images are the same if nothing could tell them apart: NULL is NULL, NaN is NaN, and 0.0 is not
-0.0. Arrow has no such comparison for nested types, so that it is here (`same_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.settings import Settings, group_rows
from tailrace.spark_sql import types
from tailrace.store import row_ids
from tailrace.store.deletes import Deleted
from tailrace.store.files import NONE, DataFile, Op, Positions, PositionsByFile, RowRange, union
from tailrace.store.reader import read_rows
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, Cost, LiveFile, Scan, each, pays
from tailrace.store.schema import CHANGE, SNAPSHOT, TableInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


INSERT, DELETE = "insert", "delete"
Flags = npt.NDArray[np.bool_]
Snapshots = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class FileDelta:
    """Rows of one file that were inserted, or that were deleted."""

    rows: RowRange
    change: str
    # The snapshot that did it; where only some rows of the file were deleted, one for each.
    snapshots: int | Snapshots

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file that was left, and not some rows of it."""
        return self.rows.keep is None

    def groups(self, group_rows: int) -> int:
        """About how many row groups hold one of the rows."""
        file = self.rows.file
        if self.rows.keep is None:
            return -(-file.rows // group_rows)
        return len(np.unique(self.rows.keep // group_rows))


def inserted_file(file: DataFile, snapshot: int, without: Positions) -> FileDelta:
    """A file that came, less the rows of it that went again."""
    rows = RowRange.of(file, without=without)
    return FileDelta(rows=rows, change=INSERT, snapshots=snapshot)


def deleted_file(file: DataFile, snapshot: int, without: Positions) -> FileDelta:
    """A file that went, with the rows that were left of it."""
    rows = RowRange.of(file, without=without)
    return FileDelta(rows=rows, change=DELETE, snapshots=snapshot)


def deleted_rows(file: DataFile, deleted: Deleted) -> FileDelta:
    """Rows that were deleted of a file."""
    rows = RowRange.at(file, deleted.positions)
    return FileDelta(rows=rows, change=DELETE, snapshots=deleted.snapshots)


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The plan of a change feed."""

    table: TableInfo
    deltas: tuple[FileDelta, ...]
    net: bool

    @property
    def rows(self) -> int:
        return sum(delta.rows.rows for delta in self.deltas)

    @property
    def only_inserts(self) -> bool:
        """Whether nothing was deleted."""
        return all(delta.change == INSERT for delta in self.deltas)

    @property
    def may_cancel(self) -> bool:
        """Whether a delete and an insert of one key can both be in it."""
        changes = {delta.change for delta in self.deltas}
        return self.net and bool(self.table.key) and len(changes) == 2

    def cost(self, settings: Settings) -> Cost:
        """What reading it takes; row groups are decoded as a whole, of usually so many rows."""
        usual = group_rows(settings, looked_up=self.table.is_looked_up)
        size = searched = 0
        for delta in self.deltas:
            file = delta.rows.file
            if delta.is_whole:
                size += file.size
                searched += file.rows
            else:
                size += file.size * delta.rows.rows // max(1, file.rows)
                searched += min(delta.groups(usual) * usual, file.rows)
        return Cost(rows=self.rows, size=size, searched=searched)

    def bytes_read(self, settings: Settings) -> int:
        """About how many bytes of Parquet must be read."""
        usual = group_rows(settings, looked_up=self.table.is_looked_up)
        total = 0
        for delta in self.deltas:
            file = delta.rows.file
            groups = -(-file.rows // usual)
            total += file.size * delta.groups(usual) // groups
        return total


def plan(runtime: Runtime, table: TableInfo, since: int, until: int, *, net: bool) -> Feed:
    """Find the changes; reads the catalog and delete files only."""
    mirror = runtime.mirror
    mirror.check(since)
    mirror.check(until)
    if since > until:
        raise InvalidError(f"changes(since={since}, until={until}): since must not be after until")
    born = [
        file for file in mirror.files_begun(table, since, until) if file.op is not Op.COMPACTION
    ]
    went: list[FileDelta] = []
    moved: list[FileDelta] = []  # deleted in files that began in the range, of a compaction
    for file in mirror.files_with_deletes(table, since, until):
        is_output = file.op is Op.COMPACTION
        if net and file.begin > since and not is_output:
            continue
        deltas = moved if net and file.begin > since else went
        deleted = runtime.deletes.read(file.deletes)
        # Deletes as old as an output are of the files before it, which tell of them.
        within = deleted.within(max(since, file.begin) if is_output else since, until)
        if len(within.positions):
            deltas.append(deleted_rows(file, within))
        if file.end is not None and since < file.end <= until and not file.rewritten:
            deltas.append(deleted_file(file, file.end, deleted.at(file.end)))
    gone: PositionsByFile = {}
    if moved:
        gone, older = _by_birth(runtime, moved, born)
        went += older
    came: list[FileDelta] = []
    for file in born:
        dead = NONE
        if net:
            dead = runtime.deletes.read(file.deletes).at(until)
            if file.key in gone:
                dead = union([dead, gone[file.key]])
            if file.end is not None and file.end <= until and not file.rewritten:
                continue
        if len(dead) < file.rows:
            came.append(inserted_file(file, file.begin, dead))
    return Feed(table=table, deltas=(*came, *went), net=net)


def _by_birth(
    runtime: Runtime, moved: Sequence[FileDelta], born: Sequence[DataFile]
) -> tuple[PositionsByFile, list[FileDelta]]:
    """Rows that were deleted after they had moved: those of some files, and the older ones.

    The files are all in which rows came in the range.
    """
    with runtime.database.read() as connection:
        firsts = row_ids.first_ids(connection, born)
    files = sorted(born, key=lambda file: firsts[file.id])
    starts = np.array([firsts[file.id] for file in files], np.int64)
    gone: dict[int, list[Positions]] = {}
    older: list[FileDelta] = []
    for delta in moved:
        positions = delta.rows.positions()
        ids = row_ids.ids_at(runtime, delta.rows.file, positions, {})
        places = np.searchsorted(starts, ids, "right") - 1
        for place in np.unique(places[places >= 0]):
            file = files[place]
            gone.setdefault(file.key, []).append(np.sort(ids[places == place] - starts[place]))
        rest = places < 0  # ids grow: these came before the range
        if rest.any():
            snapshots = np.broadcast_to(np.int64(delta.snapshots), len(positions))
            left = Deleted(positions=positions[rest], snapshots=snapshots[rest])
            older.append(deleted_rows(delta.rows.file, left))
    return {key: union(parts) for key, parts in gone.items()}, older


def is_small(runtime: Runtime, feed: Feed) -> bool:
    """Whether the driver may read a feed itself."""
    settings = runtime.settings
    return feed.rows == 0 or Budget.of(settings).covers(feed.cost(settings))


def to_arrow(runtime: Runtime, feed: Feed) -> pa.Table:
    """A small feed: `_change`, `_snapshot`, then the table's columns."""
    columns = feed.table.columns
    # Every column may be NULL in the feed: a row may be older than a column.
    plain = pa.schema([pa.field(c.name, c.type) for c in columns])
    nothing = _marked(plain.empty_table(), INSERT, np.empty(0, np.int64))

    decoded = feed.cost(runtime.settings).decoded
    kept = runtime.kept_files.for_read(decoded, columns)

    def read(delta: FileDelta) -> pa.Table:
        rows = read_rows(runtime.storage, delta.rows, columns, kept=kept)
        snapshots = np.broadcast_to(np.int64(delta.snapshots), rows.num_rows)
        return _marked(rows, delta.change, snapshots).cast(nothing.schema)

    parts = each(read, feed.deltas, threads=pays(runtime.storage, decoded))
    table = pa.concat_tables([nothing, *parts])
    return _without_equal_images(table, feed.table) if feed.may_cancel else table


def _marked(rows: pa.Table, change: str, snapshots: Snapshots) -> pa.Table:
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
    from tailrace.store.spark_scan import feed_to_df, local_frame

    if is_small(runtime, feed):
        return local_frame(runtime, to_arrow(runtime, feed))
    return feed_to_df(runtime, feed)


def same_rows(left: pa.Table, right: pa.Table) -> Flags:
    """For two tables of one shape, whether row n of one is the same as row n of the other."""
    result = np.ones(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        result &= _same(_flat(one), _flat(other))
    return result


def _flat(column: pa.ChunkedArray) -> pa.Array:
    merged = column.combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def _same(left: pa.Array, right: pa.Array) -> Flags:
    null_left, null_right = (
        array.is_null().to_numpy(zero_copy_only=False) for array in (left, right)
    )
    kind = left.type
    if pa.types.is_floating(kind):
        bits = np.int32 if kind == pa.float32() else np.int64
        values = [pc.fill_null(array, 0).to_numpy().view(bits) for array in (left, right)]
        equal = values[0] == values[1]
    elif pa.types.is_struct(kind):
        equal = np.ones(len(left), bool)
        for index in range(kind.num_fields):
            equal &= _same(pc.struct_field(left, [index]), pc.struct_field(right, [index]))
    elif not types.is_atomic(kind):
        equal = _same_lists(left, right, ~(null_left | null_right))
    else:
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    same: Flags = (null_left & null_right) | (~null_left & ~null_right & equal)
    return same


def _same_lists(left: pa.Array, right: pa.Array, both: Flags) -> Flags:
    """Lists and maps: of one length, and the same in each place."""
    result = np.zeros(len(left), bool)
    lengths = [_lengths(array) for array in (left, right)]
    rows = np.flatnonzero(both & (lengths[0] == lengths[1]))
    inside = [_inside(array.take(pa.array(rows))) for array in (left, right)]
    equal = np.logical_and.reduce([_same(*pair) for pair in zip(*inside, strict=True)])
    differs = np.concatenate([[0], np.cumsum(~equal)])
    ends = np.cumsum(lengths[0][rows])
    starts = ends - lengths[0][rows]
    result[rows] = differs[ends] == differs[starts]
    return result


def _inside(array: pa.Array) -> list[pa.Array]:
    """What lists without NULLs hold, end to end; of maps, the keys and the values."""
    return [array.keys, array.items] if pa.types.is_map(array.type) else [array.flatten()]


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    # By the offsets, which maps have like lists; Arrow's own function takes lists only.
    lengths: npt.NDArray[np.int64] = np.diff(array.offsets.to_numpy()).astype(np.int64)
    return lengths


def difference(runtime: Runtime, old: Scan, new: Scan) -> Feed:
    """The changes from one to the other, as a feed."""
    before = {live.file.key: live for live in old.files}
    after = {live.file.key: live for live in new.files}
    deltas = []
    outputs = [
        live for key, live in after.items() if key not in before and live.file.op is Op.COMPACTION
    ]
    sources = [live for key, live in before.items() if key not in after] if outputs else []
    if outputs:
        deltas += _differing(runtime, old, sources, new, outputs)
    compared = {live.file.key for live in (*sources, *outputs)}
    for key, live in after.items():
        if key in compared:
            continue
        dead = live.dead(runtime, new.at)
        if key not in before:
            if len(dead) < live.file.rows:
                deltas.append(inserted_file(live.file, new.at, dead))
            continue
        gone = np.setdiff1d(dead, before[key].dead(runtime, old.at), assume_unique=True)
        if len(gone):
            marks = np.full(len(gone), new.at, np.int64)
            deltas.append(deleted_rows(live.file, Deleted(positions=gone, snapshots=marks)))
    for key, live in before.items():
        if key not in after and key not in compared:
            deltas.append(deleted_file(live.file, new.at, live.dead(runtime, old.at)))
    return Feed(table=new.table, deltas=tuple(deltas), net=True)


def _differing(
    runtime: Runtime, old: Scan, sources: Sequence[LiveFile], new: Scan, outputs: Sequence[LiveFile]
) -> list[FileDelta]:
    """The rows that only one side of a compaction has, by their ids."""
    with runtime.database.read() as connection:
        firsts = row_ids.first_ids(connection, [live.file for live in (*sources, *outputs)])

    def ids_of(live: LiveFile, at: int) -> tuple[Positions, row_ids.RowIds]:
        positions = live.visible(runtime, at).positions()
        return positions, row_ids.ids_at(runtime, live.file, positions, firsts)

    there = [ids_of(live, old.at) for live in sources]
    here = [ids_of(live, new.at) for live in outputs]
    stayed = np.intersect1d(union(ids for _, ids in there), union(ids for _, ids in here))
    deltas = []
    for live, (positions, ids) in zip(outputs, here, strict=True):
        came = positions[~np.isin(ids, stayed, assume_unique=True)]
        if len(came):
            dead = np.setdiff1d(np.arange(live.file.rows), came, assume_unique=True)
            deltas.append(inserted_file(live.file, new.at, dead))
    for live, (positions, ids) in zip(sources, there, strict=True):
        went = positions[~np.isin(ids, stayed, assume_unique=True)]
        if len(went):
            marks = np.full(len(went), new.at, np.int64)
            deltas.append(deleted_rows(live.file, Deleted(positions=went, snapshots=marks)))
    return deltas
