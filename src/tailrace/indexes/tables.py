"""The tables of indexes: the objects that they consist of."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.catalog.columns import Int, Text, since, span
from tailrace.catalog.part import Part
from tailrace.indexes.system_views import system_views
from tailrace.propagation.tables import counter

metadata = sa.MetaData()

segment = sa.Table(
    "tailrace_segment",
    metadata,
    sa.Column("segment_id", Int, primary_key=True, autoincrement=False),
    # The job of the index that it is a part of.
    sa.Column("job_id", Int, nullable=False),
    # It is a part of the index at the snapshots s of the table with begin <= s < end.
    *span(),
    sa.Column("path", Text, nullable=False),
    sa.Column("size_bytes", Int, nullable=False),
    sa.Column("checksum", Text, nullable=False),  # SHA-256 of the object
    sa.Column("row_count", Int, nullable=False),  # rows that it finds, also those deleted since
    # JSON: rows by the key of the data file that they are in. Files of which no row is worth
    # finding are named, too: what no segment names is what the index does not have yet.
    sa.Column("files", Text, nullable=False),
    sa.Column("format", Text, nullable=False),  # what wrote it
    sa.Column("centroids", Int),  # of a vector segment that is divided into lists: by which
    sa.Index("tailrace_ix_segment", "job_id", "begin_snapshot"),
    info=since(6),
)
centroids = sa.Table(
    "tailrace_centroids",
    metadata,
    sa.Column("centroids_id", Int, primary_key=True, autoincrement=False),
    sa.Column("job_id", Int, nullable=False),
    sa.Column("path", Text, nullable=False),
    sa.Column("size_bytes", Int, nullable=False),
    sa.Column("checksum", Text, nullable=False),
    sa.Column("lists", Int, nullable=False),
    sa.Column("trained_rows", Int, nullable=False),  # in the index when they were found
    # Lists to look at for the recall that is wanted, as tried out with so many rows.
    sa.Column("probes", Int, nullable=False),
    sa.Column("calibrated_rows", Int, nullable=False),
    sa.Index("tailrace_ix_centroids", "job_id"),
    info=since(6),
)


def _begin_counting(connection: sa.Connection) -> None:
    connection.execute(sa.insert(counter).values(name="segment", value=0))


PART = Part(tables=metadata, steps={6: _begin_counting}, views=system_views)
