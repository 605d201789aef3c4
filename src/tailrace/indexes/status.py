"""An index as it is at this moment: how far it is behind, how large, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tailrace.indexes.definition import Definition
from tailrace.indexes.segment import parts_at
from tailrace.propagation.status import JobStatus
from tailrace.store import lookup
from tailrace.store.runtime import Runtime


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
    runtime: Runtime, job: JobStatus, table_id: int, definition: Definition, last_change: int
) -> IndexStatus:
    """The status of the index that a job keeps; `last_change` is the last of its table's rows."""
    mirror = runtime.mirror
    newest = mirror.newest()
    table = mirror.table_by_id(table_id, newest)
    files = [] if table is None else mirror.data_files(table, newest)
    with runtime.database.read() as connection:
        parts = parts_at(connection, job.job_id, newest)
        indexed = {key for segment in parts.segments for key in segment.files}
        pending = [file for file in files if file.key not in indexed]
        # Deletes alone leave no pending file: then the last change has to do.
        first = min([file.begin for file in pending], default=last_change)
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
