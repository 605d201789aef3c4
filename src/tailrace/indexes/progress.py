"""How far an index and its table are; one query, which every search makes."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tailrace.catalog.columns import Int
from tailrace.indexes import tables as t
from tailrace.propagation import tables as pt
from tailrace.propagation.freshness import is_fresh
from tailrace.store import tables as st
from tailrace.store.lookup import NEWEST, OLDEST
from tailrace.store.runtime import Runtime

_PROGRESS = (
    sa.select(
        pt.job.c.watermark,
        pt.job.c.dropped_at,
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
    .where(pt.job.c.job_id == sa.bindparam("job_id", type_=Int))
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
    rows = runtime.database.rows(_PROGRESS, {"job_id": job_id})
    if not rows:
        return None
    watermark, dropped_at, changed, altered, oldest, newest, segment, probes = rows[0]
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
