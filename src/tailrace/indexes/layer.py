"""What the store asks of indexes: which objects they still need.

Always true: a segment or a set of centroids leaves the catalog in the commit after which no
snapshot shows it, and only then can its object be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import sqlalchemy as sa

from tailrace.indexes import tables as t
from tailrace.propagation.tables import job
from tailrace.store.layer import Layer, UnusedObject
from tailrace.store.runtime import Runtime


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
    is_there = sa.exists().where(job.c.job_id == table.c.job_id, job.c.dropped_at.is_(None))
    (number,) = table.primary_key.columns
    statement = sa.delete(table).where(sa.or_(~is_there, condition))
    gone = connection.execute(statement.returning(number, table.c.path, table.c.size_bytes))
    return [UnusedObject(id=-row[0], path=row[1], size=row[2]) for row in gone if row[1]]
