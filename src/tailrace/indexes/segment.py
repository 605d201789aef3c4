"""Segments: the immutable parts of an index, as the catalog knows them.

Always true: an index at snapshot s of its table consists of the segments with begin <= s < end.
A segment has rows of some data files: each row that can be found is in exactly one segment of the
index at a snapshot. Rows are known by their places and by their ids: of a row that compaction has
moved, the id is still right. Segments don't know which rows were deleted since: the table's own
delete files do, for every snapshot. A segment or a set of centroids leaves the catalog in the
commit after which no snapshot shows it, and only then can its object be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.errors import ConflictError
from tailrace.indexes import tables as t
from tailrace.propagation import tables as pt
from tailrace.store import lookup
from tailrace.store.counters import next_number
from tailrace.store.runtime import Layer, Runtime, UnusedObject
from tailrace.store.sweep import schedule

_S, _C = t.segment.c, t.centroids.c
_SEQUENCE = "segment"  # of the ids that segments and centroids share
# The columns of the fields of a `Segment` and of `Centroids`.
_SEGMENT = {
    "id": _S.segment_id,
    "begin": _S.begin_snapshot,
    "path": _S.path,
    "size": _S.size_bytes,
    "checksum": _S.checksum,
    "rows": _S.row_count,
    "files": _S.files,
    "format": _S.format,
    "centroids": _S.centroids,
    "next_row_id": _S.next_row_id,
    "first_ids": _S.first_ids,
}
_CENTROIDS = {
    "id": _C.centroids_id,
    "path": _C.path,
    "size": _C.size_bytes,
    "checksum": _C.checksum,
    "lists": _C.lists,
    "trained_rows": _C.trained_rows,
    "probes": _C.probes,
    "calibrated_rows": _C.calibrated_rows,
}


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One object of an index."""

    path: str  # relative to the lake; empty if it has no rows, and so no object
    size: int
    checksum: str
    rows: int
    # The number of its rows by the key of their data file, including 0.
    files: Mapping[int, int]
    format: str
    centroids: int | None = None
    # The id of the first row by the key of its data file; None if it has the ids of its rows.
    first_ids: Mapping[int, int] | None = None
    id: int = -1  # until committed
    begin: int = -1
    next_row_id: int = -1  # rows with a lesser id were taken in when it began


@dataclass(frozen=True, kw_only=True)
class Centroids:
    """What divides the vectors of some segments into lists."""

    path: str
    size: int
    checksum: str
    lists: int
    trained_rows: int
    probes: int  # lists that a search looks at
    calibrated_rows: int
    id: int = -1


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an index consists of at a snapshot."""

    segments: tuple[Segment, ...]
    centroids: Mapping[int, Centroids] = field(default_factory=dict)

    @property
    def newest_centroids(self) -> Centroids | None:
        return self.centroids[max(self.centroids)] if self.centroids else None

    @property
    def begin(self) -> int:
        """The last snapshot whose rows were taken in; -1 if there is none."""
        return max((one.begin for one in self.segments), default=-1)

    @property
    def next_row_id(self) -> int:
        """Rows with a lesser id were taken in, and no others."""
        return max((one.next_row_id for one in self.segments), default=0)


def parts_at(connection: sa.Connection, job_id: int, at: int) -> Parts:
    """The parts of an index at a snapshot of its table."""
    query = _select(_SEGMENT).where(_S.job_id == job_id, lookup.visible(t.segment, at))
    segments = []
    for row in connection.execute(query.order_by(_S.segment_id)).mappings():
        firsts = None if row["first_ids"] is None else _numbers(row["first_ids"])
        segments.append(Segment(**{**row, "files": _numbers(row["files"]), "first_ids": firsts}))
    rows = connection.execute(_select(_CENTROIDS).where(_C.job_id == job_id)).mappings()
    centroids = {row["id"]: Centroids(**row) for row in rows}
    return Parts(segments=tuple(segments), centroids=centroids)


def _numbers(text: str) -> dict[int, int]:
    return {int(key): number for key, number in json.loads(text).items()}


def _select(columns: Mapping[str, sa.Column[Any]]) -> sa.Select[Any]:
    return sa.select(*(column.label(name) for name, column in columns.items()))


def _values(stored: Segment | Centroids, columns: Mapping[str, sa.Column[Any]]) -> dict[str, Any]:
    """What a row has of it."""
    return {column.name: getattr(stored, name) for name, column in columns.items()}


def enter_centroids(connection: sa.Connection, job_id: int, new: Centroids) -> Centroids:
    """Add centroids; returns them with their id."""
    entered = replace(new, id=next_number(connection, _SEQUENCE))
    connection.execute(sa.insert(t.centroids), {"job_id": job_id, **_values(entered, _CENTROIDS)})
    return entered


def check_centroids(connection: sa.Connection, used: Centroids | None) -> None:
    """Raise ConflictError if a purge has removed the centroids that new segments are divided by."""
    if used is None:
        return
    query = sa.select(_C.centroids_id).where(_C.centroids_id == used.id)
    if connection.execute(query).first() is None:
        raise ConflictError("the centroids of this index were replaced meanwhile")


def calibrate(connection: sa.Connection, number: int, *, probes: int, rows: int) -> None:
    """Store how many lists a search has to look at."""
    connection.execute(
        sa.update(t.centroids)
        .where(_C.centroids_id == number)
        .values(probes=probes, calibrated_rows=rows)
    )


def next_row_id(connection: sa.Connection, table_id: int, at: int) -> int:
    """The ids of the rows that a table got up to a snapshot are below this.

    Right while the history since then is kept, under the lock of a commit.
    """
    f, w = dl.data_file.c, dl.table_stats.c
    later = sa.select(sa.func.min(f.row_id_start)).where(
        f.table_id == table_id, f.begin_snapshot > at
    )
    first = connection.execute(later).scalar()
    if first is None:
        query = sa.select(w.next_row_id).where(w.table_id == table_id)
        first = connection.execute(query).scalar_one()
    return int(first)


def taken_in(connection: sa.Connection, job_id: int) -> int:
    """Rows of the table with a lesser id, an index has taken in by now."""
    query = sa.select(sa.func.max(_S.next_row_id)).where(
        _S.job_id == job_id, _S.end_snapshot.is_(None)
    )
    return int(connection.execute(query).scalar() or 0)


def enter(
    connection: sa.Connection,
    job_id: int,
    segments: Sequence[Segment],
    begin: int,
    *,
    next_row_id: int,
) -> None:
    """Make segments a part of an index, from a snapshot of the table on.

    Up to there the index has taken in the rows with ids below `next_row_id`.
    """
    if not segments:
        return
    first = next_number(connection, _SEQUENCE, len(segments)) - len(segments) + 1
    rows = [
        _values(replace(one, id=number, begin=begin, next_row_id=next_row_id), _SEGMENT)
        | {"job_id": job_id, "files": json.dumps(one.files)}
        for number, one in enumerate(segments, first)
    ]
    connection.execute(sa.insert(t.segment), rows)


def end(connection: sa.Connection, ids: Iterable[int], at: int, now: datetime) -> int:
    """End segments at a snapshot; returns how many were still a part of their index.

    Those that began there, no snapshot shows any more: their objects go when readers are done.
    """
    own = _S.segment_id.in_(list(ids))
    open_ones = sa.and_(own, _S.end_snapshot.is_(None))
    never = sa.delete(t.segment).where(open_ones, _S.begin_snapshot >= at)
    gone = connection.execute(never.returning(_S.segment_id, _S.path)).all()
    schedule(connection, [(-row[0], row[1]) for row in gone if row[1]], now)
    ended = connection.execute(sa.update(t.segment).where(open_ones).values(end_snapshot=at))
    return len(gone) + int(ended.rowcount)


def end_all(connection: sa.Connection, job_id: int, at: int, now: datetime) -> None:
    """End all segments of an index."""
    query = sa.select(_S.segment_id).where(_S.job_id == job_id, _S.end_snapshot.is_(None))
    end(connection, connection.execute(query).scalars().all(), at, now)


class IndexLayer(Layer):
    """The objects of indexes, as the store meets them."""

    def objects_in_use(self, connection: sa.Connection, paths: Collection[str]) -> Iterator[str]:
        for table in (t.segment, t.centroids):
            query = sa.select(table.c.path).where(table.c.path.in_(paths))
            yield from connection.execute(query).scalars().all()

    def purging(
        self, _runtime: Runtime, connection: sa.Connection, horizon: int
    ) -> Iterable[UnusedObject]:
        """Segments that no snapshot shows any more, or whose index was dropped."""
        own, newer = t.centroids.c, t.centroids.alias()
        # Of centroids, those that no segment is divided by, but for the newest.
        unused = sa.and_(
            sa.exists().where(
                newer.c.job_id == own.job_id, newer.c.centroids_id > own.centroids_id
            ),
            ~sa.exists().where(t.segment.c.centroids == own.centroids_id),
        )
        ended = t.segment.c.end_snapshot <= horizon
        return [*_take(connection, t.segment, ended), *_take(connection, t.centroids, unused)]


def _take(
    connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]
) -> list[UnusedObject]:
    """Delete the rows of objects that are not needed; returns those objects."""
    is_there = sa.exists().where(pt.job.c.job_id == table.c.job_id, pt.job.c.dropped_at.is_(None))
    (number,) = table.primary_key.columns
    statement = sa.delete(table).where(sa.or_(~is_there, condition))
    gone = connection.execute(statement.returning(number, table.c.path, table.c.size_bytes))
    return [UnusedObject(id=-row[0], path=row[1], size=row[2]) for row in gone if row[1]]
