"""How far an index and its table are: what every search asks, and what users see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog.part import Int
from tailrace.indexes import tables as t
from tailrace.indexes.definition import Definition
from tailrace.indexes.segment import Parts, parts_at
from tailrace.propagation import tables as pt
from tailrace.propagation.freshness import is_fresh
from tailrace.propagation.status import JobStatus
from tailrace.store import lookup, table_files
from tailrace.store import tables as st
from tailrace.store.files import DataFile, Op
from tailrace.store.lookup import NEWEST, OLDEST
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo


@dataclass(frozen=True, kw_only=True)
class IndexStatus:
    """An index, as it is at this moment."""

    table: str
    name: str
    using: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]
    state: str  # of its job
    # The snapshot that it reflects: the newest, if its table has not changed since; None while
    # it is being built.
    watermark: int | None
    is_fresh: bool
    pending_rows: int  # of the table that it does not have yet
    lag_seconds: float  # how long ago the oldest change was made that it does not have
    rows: int  # in its segments, some of them deleted since
    segments: int
    size_bytes: int
    error: str | None
    note: str | None
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def status_of(
    runtime: Runtime, job: JobStatus, progress: Progress, definition: Definition
) -> IndexStatus:
    """The status of the index that a job keeps."""
    mirror = runtime.mirror
    newest = mirror.newest()
    table = mirror.table_by_id(progress.table_id, newest)
    files = [] if table is None else mirror.data_files(table, newest)
    with runtime.database.read() as connection:
        parts = parts_at(connection, job.job_id, newest)
        pending = (
            [] if table is None else _pending(connection, progress, table, files, parts, newest)
        )
        # Deletes alone leave no pending file: then the last change has to do.
        first = min([file.begin for file in pending], default=progress.changed)
        since = lookup.snapshot_time(connection, first) or job.created_at
    # Also of an index that has lost a column, and says so.
    names = {} if table is None else {column.id: column.name for column in table.columns}
    lag = (runtime.clock.now() - since).total_seconds()
    return IndexStatus(
        table=job.table,
        name=job.name,
        using=definition.using,
        columns=tuple(names.get(number, "(dropped)") for number in definition.columns),
        options=definition.options.to_dict(),
        state=str(job.state),
        watermark=job.watermark,
        is_fresh=job.is_fresh,
        pending_rows=sum(
            file.rows - (file.deletes.count if file.deletes else 0) for file in pending
        ),
        lag_seconds=0.0 if job.is_fresh else max(0.0, lag),
        rows=sum(segment.rows for segment in parts.segments),
        segments=sum(1 for segment in parts.segments if segment.path),
        size_bytes=sum(segment.size for segment in parts.segments)
        + sum(one.size for one in parts.centroids.values()),
        error=job.error,
        note=job.note,
        created_at=job.created_at,
    )


def _pending(
    connection: sa.Connection,
    progress: Progress,
    table: TableInfo,
    files: Sequence[DataFile],
    parts: Parts,
    newest: int,
) -> list[DataFile]:
    """The files with the rows that an index does not have yet.

    What compaction has moved counts where it came in.
    """
    named = {key for segment in parts.segments for key in segment.files}
    pending = [file for file in files if file.key not in named]
    if progress.watermark is None or progress.watermark < progress.oldest:
        return pending  # it has to be built from what there is
    begun = table_files.files_begun(connection, table, progress.watermark, newest)
    pending += [file for file in begun if file.rewritten]
    return [file for file in pending if file.op is not Op.COMPACTION]


# One query, which every search makes.
_PROGRESS = (
    sa.select(
        pt.job.c.watermark,
        st.own_table.c.table_id,
        st.own_table.c.last_change_snapshot.label("changed"),
        st.own_table.c.last_alter_snapshot.label("altered"),
        OLDEST.label("oldest"),
        NEWEST.label("newest"),
        sa.select(sa.func.max(t.segment.c.segment_id))
        .where(t.segment.c.job_id == pt.job.c.job_id)
        .scalar_subquery()
        .label("segment"),
        sa.select(sa.func.sum(t.centroids.c.probes))
        .where(t.centroids.c.job_id == pt.job.c.job_id)
        .scalar_subquery()
        .label("probes"),
    )
    .join(pt.job_source, pt.job_source.c.job_id == pt.job.c.job_id)
    .join(st.own_table, st.own_table.c.table_id == pt.job_source.c.table_id)
    .where(pt.job.c.job_id == sa.bindparam("job_id", type_=Int), pt.job.c.dropped_at.is_(None))
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an index and its table are."""

    table_id: int
    watermark: int | None
    changed: int  # when the table's rows changed last
    altered: int  # when its columns did, and rows perhaps not
    oldest: int  # snapshot of the lake
    newest: int  # snapshot of the lake
    version: tuple[int, int]  # another whenever its parts are, also of the same watermark

    @property
    def is_fresh(self) -> bool:
        return is_fresh(self.watermark, [self.changed])


def progress_of(runtime: Runtime, job_id: int) -> Progress | None:
    """How far an index is; None if it was dropped."""
    rows = runtime.database.rows(_PROGRESS, {"job_id": job_id})
    if not rows:
        return None
    watermark, table_id, changed, altered, oldest, newest, segment, probes = rows[0]
    return Progress(
        table_id=table_id,
        watermark=watermark,
        changed=changed,
        altered=altered,
        oldest=oldest,
        newest=newest,
        version=(int(segment or 0), int(probes or 0)),
    )
