"""What a search sees: the segments of an index at a snapshot, and what the table says of them.

Always true: a state is complete and never changes. Rows that were deleted up to its snapshot are
in `gone`; rows of files that no segment names are its tail, which the index does not have yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.errors import NotFoundError, UnavailableError
from tailrace.fixes import Action, Fix
from tailrace.indexes.build import format_of
from tailrace.indexes.definition import Definition
from tailrace.indexes.rowmap import Gone
from tailrace.indexes.segment import Parts, Segment, parts_at
from tailrace.propagation.freshness import is_fresh
from tailrace.store import lookup
from tailrace.store.deletes import Deleted, Positions
from tailrace.store.files import DataFile
from tailrace.store.pieces import Piece, piece_without
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import TableInfo

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class State:
    """An index at a snapshot of its table."""

    definition: Definition
    table: TableInfo
    at: int
    parts: Parts
    files: Mapping[int, DataFile]  # of the table at the snapshot, by their keys
    gone: Gone  # of the files that the segments name
    deletes: Mapping[int, Deleted]  # of its files, with their snapshots
    tail: tuple[Piece, ...]

    @property
    def tail_rows(self) -> int:
        return sum(piece.rows for piece in self.tail)

    def live_piece(self, key: int) -> Piece:
        """All rows of a file that are there at the snapshot."""
        gone = self.gone.get(key)
        return piece_without(self.files[key], _NONE if gone is None else gone)

    @property
    def scan(self) -> Scan:
        """The table at the snapshot."""
        live = tuple(LiveFile(file=file) for file in self.files.values())
        return Scan(table=self.table, at=self.at, files=live)


def state_at(
    runtime: Runtime,
    job_id: int,
    table_id: int,
    definition: Definition,
    at: int,
    *,
    any_format: bool = False,
) -> State:
    """An index at a snapshot; of any format, if it is not going to be searched."""
    with runtime.database.read_at_once() as connection:
        lookup.check_snapshot(connection, at)
        table = lookup.table_by_id(connection, table_id, at)
        if table is None:
            raise NotFoundError(f"the table of this index is not there at snapshot {at}")
        parts = parts_at(connection, job_id, at)
        files = {file.key: file for file in lookup.data_files(connection, table, at)}
    now = format_of(definition)
    old = [one for one in parts.segments if one.path and one.format != now]
    if old and not any_format:
        raise UnavailableError(
            f"this index was written by {old[0].format!r}, and here is {now!r}: "
            "it is built anew in the background",
            fix=Fix(Action.REBUILD_INDEX),
        )
    if not any_format:
        definition.columns_of(table)  # one that was dropped is not searched any more
    named = {key for segment in parts.segments for key in segment.files}
    deletes = {
        key: runtime.deletes.read(file.deletes)
        for key, file in files.items()
        if file.deletes is not None
    }
    dead = {key: deleted.at(at) for key, deleted in deletes.items()}
    gone: dict[int, Positions | None] = {key: None for key in named if key not in files}
    gone |= {key: positions for key, positions in dead.items() if key in named}
    return State(
        definition=definition,
        table=table,
        at=at,
        parts=parts,
        files=files,
        gone=gone,
        deletes=deletes,
        tail=tuple(
            piece_without(file, dead.get(key, _NONE))
            for key, file in files.items()
            if key not in named
        ),
    )


def live_rows(state: State) -> dict[int, float]:
    """About how many rows of each segment are still there, by the segment's id.

    What was deleted of a file since a segment began is taken to be spread evenly over its rows.
    """

    def share(segment: Segment, key: int) -> float:
        file = state.files.get(key)
        if file is None:
            return 0.0
        before = len(state.deletes[key].at(segment.begin)) if key in state.deletes else 0
        now = len(state.deletes[key].at(state.at)) if key in state.deletes else 0
        return 1 - (now - before) / max(1, file.rows - before)

    return {
        segment.id: sum(rows * share(segment, key) for key, rows in segment.files.items())
        for segment in state.parts.segments
    }


_HEAD = (
    sa.select(
        t.job.c.watermark,
        t.job.c.dropped_at,
        t.own_table.c.last_change_snapshot.label("changed"),
        t.own_table.c.last_alter_snapshot.label("altered"),
        sa.select(sa.func.min(t.snapshot.c.snapshot_id)).scalar_subquery().label("oldest"),
        sa.select(sa.func.max(t.snapshot.c.snapshot_id)).scalar_subquery().label("newest"),
        sa.select(sa.func.max(t.segment.c.segment_id))
        .where(t.segment.c.job_id == t.job.c.job_id)
        .scalar_subquery()
        .label("segment"),
        sa.select(sa.func.sum(t.centroids.c.probes))
        .where(t.centroids.c.job_id == t.job.c.job_id)
        .scalar_subquery()
        .label("probes"),
    )
    .join(t.job_source, t.job_source.c.job_id == t.job.c.job_id)
    .join(t.own_table, t.own_table.c.table_id == t.job_source.c.table_id)
    .where(t.job.c.job_id == sa.bindparam("job_id", type_=t.Int))
)


@dataclass(frozen=True, kw_only=True)
class Head:
    """How far an index and its table are: asked at every search."""

    watermark: int | None
    changed: int  # when the table's rows changed last
    altered: int  # when its columns did, and rows perhaps not
    oldest: int  # snapshot of the lake
    newest: int  # snapshot of the lake
    version: tuple[int, int]  # another whenever its parts are, also of the same watermark

    @property
    def is_fresh(self) -> bool:
        return is_fresh(self.watermark, [self.changed])


def head_of(runtime: Runtime, job_id: int) -> Head | None:
    """How far an index is; None if it was dropped."""
    row = runtime.database.row(_HEAD, {"job_id": job_id})
    if row is None:
        return None
    watermark, dropped_at, changed, altered, oldest, newest, segment, probes = row
    if dropped_at is not None:
        return None
    return Head(
        watermark=watermark,
        changed=changed,
        altered=altered,
        oldest=oldest,
        newest=newest,
        version=(int(segment or 0), int(probes or 0)),
    )
