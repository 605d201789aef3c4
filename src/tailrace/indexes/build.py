"""Builds segments from pieces of data files, in this process or in Spark's tasks.

Always true: a task reads its pieces, writes one object after the other, and returns what they are;
no row goes through the driver, unless they are few. Nothing is visible before the caller commits.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.indexes.definition import Definition
from tailrace.indexes.kind import SegmentWriter
from tailrace.indexes.row_addresses import NAME as ROWS
from tailrace.indexes.row_addresses import key_name, write_rows
from tailrace.indexes.segment import Centroids, Segment
from tailrace.indexes.segment_files import SegmentCache, write_archive
from tailrace.objects import Storage
from tailrace.store import row_ids
from tailrace.store.files import Op, Positions, RowRange, split
from tailrace.store.reader import read
from tailrace.store.schema import ROW_ID_COLUMN, Column, TableInfo
from tailrace.store.spark_actions import run_tasks
from tailrace.store.write import new_object_name

if TYPE_CHECKING:
    from tailrace.store.transaction import Transaction

# Rows, and bytes of text or vectors, after which a task begins the next segment.
SEGMENT_ROWS = 4_000_000
SEGMENT_BYTES = 1024**3
_STEP = 8_192  # rows between two checks of that
# Up to so many rows are built here: starting a Spark job takes longer.
_LOCAL_ROWS = 20_000
_TASKS = 8  # at once, if Spark does not tell
# Rows that make another task worth it.
_TASK_ROWS = 50_000


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Builds segments of one index for one transaction. Can be sent to Spark's workers."""

    source: Storage  # of the table
    storage: Storage  # of the objects: another for segments that never become a part of the lake
    definition: Definition
    columns: tuple[Column, ...]  # that the index is of
    keys: tuple[Column, ...]
    directory: str  # where the objects go
    txn_id: str
    centroids: Centroids | None = None
    cache_bytes: int = 0
    # The id of the first row of each plain file, by the file's key; None for segments that never
    # become a part of the lake: nobody will look for their rows elsewhere.
    first_ids: Mapping[int, int] | None = None

    def run(self, pieces: Iterable[RowRange], *, small: bool = False) -> Iterator[Segment]:
        """Build segments of some pieces; they name every file, including those without a row."""
        columns = list(dict.fromkeys((*self.columns, *self.keys)))
        current = _Segment(self, small=small)
        try:
            for piece in pieces:
                current.files.setdefault(piece.file.key, 0)
                has_ids = self.first_ids is not None and piece.file.op is Op.COMPACTION
                wanted = [*columns, ROW_ID_COLUMN] if has_ids else columns
                for positions, rows in read(self.source, piece, wanted):
                    ids = self._ids(piece, positions, rows)
                    for start in range(0, rows.num_rows, _STEP):
                        some = slice(start, start + _STEP)
                        current.add(
                            piece.file.key,
                            positions[some],
                            None if ids is None else ids[some],
                            rows.slice(start, _STEP),
                        )
                        if current.is_full:
                            yield current.finish()
                            current.close()
                            current = _Segment(self, small=small)
                            current.files.setdefault(piece.file.key, 0)
            if current.files:
                yield current.finish()
        finally:
            current.close()

    def _ids(self, piece: RowRange, positions: Positions, rows: pa.Table) -> row_ids.RowIds | None:
        if self.first_ids is None:
            return None
        if piece.file.op is not Op.COMPACTION:
            return self.first_ids[piece.file.key] + positions
        ids: row_ids.RowIds = rows.column(ROW_ID_COLUMN.name).to_numpy()
        return ids

    def open_centroids(self) -> Any | None:
        """What the segments are divided by."""
        if self.centroids is None:
            return None
        from tailrace.indexes.vectors import training

        return SegmentCache(limit=self.cache_bytes).use(
            self.source,
            self.centroids.path,
            self.centroids.checksum,
            lambda directory: training.load(self.definition, directory),
        )


class _Segment:
    """One segment under construction."""

    def __init__(self, builder: Builder, *, small: bool) -> None:
        self._builder, self._small = builder, small
        self._directory = Path(tempfile.mkdtemp(prefix="tailrace-"))
        self._writer: SegmentWriter | None = None
        self._files: list[np.ndarray[Any, Any]] = []
        self._positions: list[np.ndarray[Any, Any]] = []
        self._ids: list[row_ids.RowIds] = []
        self._keys: list[pa.Table] = []
        self.files: dict[int, int] = {}
        self.rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= SEGMENT_ROWS or self._bytes >= SEGMENT_BYTES

    def add(
        self, file: int, positions: Positions, ids: row_ids.RowIds | None, rows: pa.Table
    ) -> None:
        builder = self._builder
        names = [column.name for column in builder.columns]
        there = pc.is_valid(rows.column(names[0]))
        for name in names[1:]:
            there = pc.or_(there, pc.is_valid(rows.column(name)))
        if not pc.all(there).as_py():
            flags = np.asarray(there)
            positions, rows = positions[flags], rows.filter(there)
            ids = None if ids is None else ids[flags]
        if not rows.num_rows:
            return
        if self._writer is None:
            self._writer = self._new_writer()
        columns = [rows.column(name) for name in names]
        self._writer.add(columns)
        self._bytes += sum(column.nbytes for column in columns)
        self._files.append(np.full(len(positions), file, np.int64))
        self._positions.append(positions)
        if ids is not None:
            self._ids.append(ids)
        keys = rows.select([column.name for column in builder.keys])
        self._keys.append(keys.rename_columns([key_name(column) for column in builder.keys]))
        self.files[file] = self.files.get(file, 0) + len(positions)
        self.rows += len(positions)

    def _new_writer(self) -> SegmentWriter:
        builder = self._builder
        return builder.definition.kind.writer(
            builder.definition,
            self._directory,
            small=self._small,
            centroids=builder.open_centroids(),
        )

    def finish(self) -> Segment:
        """Write the object, unless there is no row."""
        builder = self._builder
        segment = Segment(
            path="",
            size=0,
            checksum="",
            rows=self.rows,
            files=self.files,
            format=builder.definition.kind.format,
            centroids=None if builder.centroids is None else builder.centroids.id,
        )
        if self._writer is None:
            return segment
        write_rows(
            self._directory,
            np.concatenate(self._files),
            np.concatenate(self._positions),
            pa.concat_tables(self._keys),
            np.concatenate(self._ids) if self._ids else None,
        )
        files = self._writer.finish()
        name = new_object_name(builder.txn_id, ending="segment")
        path = f"{builder.directory}{name}"
        size, checksum = write_archive(builder.storage, path, [*files, self._directory / ROWS])
        return replace(segment, path=path, size=size, checksum=checksum)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def build(
    txn: Transaction,
    definition: Definition,
    table: TableInfo,
    pieces: Sequence[RowRange],
    centroids: Centroids | None,
    *,
    few: bool = False,
) -> list[Segment]:
    """Segments of some pieces, whose objects are the transaction's.

    As `few` as possible if they replace many; else at most so many of one size that they are not
    merged at once.
    """
    runtime = txn.runtime
    read_from = {piece.file.id: piece.file for piece in pieces}
    with runtime.database.read() as connection:
        firsts = row_ids.first_ids(connection, read_from.values())
    builder = Builder(
        source=runtime.storage,
        storage=runtime.storage,
        definition=definition,
        columns=tuple(definition.columns_of(table)),
        keys=table.key_columns,
        directory=table.path,
        txn_id=txn.object_owner(),
        centroids=centroids,
        cache_bytes=runtime.settings.cache_bytes,
        first_ids={read_from[number].key: first for number, first in firsts.items()},
    )
    rows = sum(piece.rows for piece in pieces)
    if rows <= _LOCAL_ROWS:
        segments = _fold_empty(builder.run(pieces, small=True))
    else:
        spark = runtime.spark()
        most = max(1 if few else runtime.settings.merge_segments - 1, rows // SEGMENT_ROWS)
        tasks = max(1, min(_parallelism(spark), rows // _TASK_ROWS, most))
        whole = not definition.kind.shares_row_groups
        shares = split(pieces, tasks, runtime.settings.row_group_rows, whole_groups=whole)
        built = run_tasks(spark, lambda share: list(builder.run(share)), shares)
        segments = _fold_empty(chain.from_iterable(built))
    txn.own_objects(segment.path for segment in segments if segment.path)
    return segments


def _parallelism(spark: Any) -> int:
    """How many tasks run at once."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  (a Connect server keeps it to itself)
        return _TASKS


def _fold_empty(segments: Iterable[Segment]) -> list[Segment]:
    """Fold segments without rows, which only name files, into one that has rows."""
    every = list(segments)
    empty = [segment for segment in every if not segment.rows]
    full = [segment for segment in every if segment.rows]
    if not empty:
        return full
    named = {file: 0 for segment in empty for file in segment.files}
    for segment in full:
        for file in segment.files:
            named.pop(file, None)
    if full and named:
        full[0] = replace(full[0], files={**named, **full[0].files})
        return full
    return full or [replace(empty[0], files=named)]
