"""How far an index and its table are; one query, which every search makes."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tailrace.catalog import tables as t
from tailrace.propagation.freshness import is_fresh
from tailrace.store.runtime import Runtime

_PROGRESS = (
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
class Progress:
    """How far an index and its table are."""

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
    row = runtime.database.row(_PROGRESS, {"job_id": job_id})
    if row is None:
        return None
    watermark, dropped_at, changed, altered, oldest, newest, segment, probes = row
    if dropped_at is not None:
        return None
    return Progress(
        watermark=watermark,
        changed=changed,
        altered=altered,
        oldest=oldest,
        newest=newest,
        version=(int(segment or 0), int(probes or 0)),
    )
