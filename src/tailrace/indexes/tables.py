"""The tables of indexes, of the objects that they consist of, and the system view of indexes."""

from __future__ import annotations

import json

import sqlalchemy as sa

from tailrace.catalog.part import Int, Part, Text, since, span
from tailrace.propagation.tables import ERROR, STATE, fill
from tailrace.store.tables import counter

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
    # Rows of the table with a lesser id, the index had taken in when this became a part of it.
    sa.Column("next_row_id", Int, nullable=False, server_default="0"),
    # JSON: the id of the first row by the key of a data file. Only for segments of before version
    # 11: the others have the ids of their rows.
    sa.Column("first_ids", Text),
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

# The columns of an index, by their names of today, and its options.
_COLUMNS = {
    "sqlite": "(SELECT group_concat(n.column_name, ', ') FROM ("
    "SELECT c.column_name FROM json_each(j.spec, '$.consumer.column_ids') k "
    "JOIN ducklake_column c ON c.column_id = k.value AND c.table_id = s.table_id "
    "WHERE c.end_snapshot IS NULL ORDER BY k.key) n)",
    "postgresql": "(SELECT string_agg(c.column_name, ', ' ORDER BY k.place) "
    "FROM json_array_elements_text(j.spec::json #> '{consumer,column_ids}') "
    "WITH ORDINALITY AS k(id, place) "
    "JOIN ducklake_column c ON c.column_id = k.id::bigint AND c.table_id = s.table_id "
    "WHERE c.end_snapshot IS NULL)",
}
_OPTIONS = {
    "sqlite": "json_remove(json_extract(j.spec, '$.consumer'), '$.kind', '$.column_ids')",
    "postgresql": "((j.spec::jsonb -> 'consumer') - 'kind' - 'column_ids')::text",
}
# Rows that an index does not have yet are in files that came after the snapshot it reflects, and
# those of such files that compaction moved since. Where that history is gone, all has to be read.
_INDEXES = """
WITH parts AS (
    SELECT g.job_id, SUM(g.row_count) AS count_rows, SUM(g.size_bytes) AS size,
           SUM(CASE WHEN g.path <> '' THEN 1 ELSE 0 END) AS segments
    FROM tailrace_segment g WHERE g.end_snapshot IS NULL GROUP BY g.job_id
), centroids AS (
    SELECT c.job_id, SUM(c.size_bytes) AS size FROM tailrace_centroids c GROUP BY c.job_id
), deletes AS (
    SELECT d.data_file_id, SUM(d.delete_count) AS count_rows
    FROM ducklake_delete_file d GROUP BY d.data_file_id
), pending AS (
    SELECT j.job_id, SUM(f.record_count - COALESCE(d.count_rows, 0)) AS count_rows
    FROM tailrace_job j
    JOIN tailrace_job_source s ON s.job_id = j.job_id
    JOIN ducklake_data_file f ON f.table_id = s.table_id
    JOIN tailrace_file o ON o.data_file_id = f.data_file_id
    LEFT JOIN deletes d ON d.data_file_id = f.data_file_id
    WHERE j.kind IN ('fulltext', 'vector') AND j.dropped_at IS NULL
      AND f.begin_snapshot > COALESCE(j.watermark, -1)
      AND CASE WHEN j.watermark >= (SELECT MIN(a.snapshot_id) FROM ducklake_snapshot a)
               THEN f.row_id_start IS NOT NULL
                    AND (f.end_snapshot IS NULL OR o.rewritten IS NOT NULL)
               ELSE f.end_snapshot IS NULL END
    GROUP BY j.job_id
)
SELECT j.tenant, j.home AS object, j.name, j.kind, {columns} AS columns, {state},
       f.watermark, f.lag_snapshots, f.lag_seconds,
       CAST(COALESCE(w.count_rows, 0) AS BIGINT) AS pending_rows,
       CAST(COALESCE(p.count_rows, 0) AS BIGINT) AS rows,
       CAST(COALESCE(p.segments, 0) AS BIGINT) AS segments,
       CAST(COALESCE(p.size, 0) + COALESCE(c.size, 0) AS BIGINT) AS bytes,
       {error} AS error, {options} AS options
FROM tailrace_job j
JOIN tailrace_job_source s ON s.job_id = j.job_id
JOIN tailrace_sys_freshness f
  ON f.tenant = j.tenant AND f.object = j.home AND f.name = j.name
LEFT JOIN parts p ON p.job_id = j.job_id
LEFT JOIN centroids c ON c.job_id = j.job_id
LEFT JOIN pending w ON w.job_id = j.job_id
WHERE j.kind IN ('fulltext', 'vector') AND j.dropped_at IS NULL
"""


def system_views(dialect: str) -> dict[str, str]:
    """The text of the view, by its name."""
    pieces = {
        "state": STATE,
        "error": ERROR[dialect],
        "columns": _COLUMNS[dialect],
        "options": _OPTIONS[dialect],
    }
    return {"indexes": fill(_INDEXES, pieces)}


def _begin_counting(connection: sa.Connection) -> None:
    connection.execute(sa.insert(counter).values(name="segment", value=0))


# As `segment.next_row_id` says it, for all segments.
_TAKEN_IN = """
UPDATE tailrace_segment SET next_row_id = COALESCE(
    (SELECT MIN(f.row_id_start) FROM tailrace_job_source s
     JOIN ducklake_data_file f ON f.table_id = s.table_id
     WHERE s.job_id = tailrace_segment.job_id
       AND f.begin_snapshot > tailrace_segment.begin_snapshot),
    (SELECT MAX(w.next_row_id) FROM tailrace_job_source s
     JOIN ducklake_table_stats w ON w.table_id = s.table_id
     WHERE s.job_id = tailrace_segment.job_id), 0)
"""
_FIRST_IDS = """
SELECT j.job_id, o.file_key, f.row_id_start
FROM tailrace_job_source j
JOIN ducklake_data_file f ON f.table_id = j.table_id
JOIN tailrace_file o ON o.data_file_id = f.data_file_id
WHERE EXISTS (SELECT 1 FROM tailrace_segment g WHERE g.job_id = j.job_id)
"""


def _add_row_ids(connection: sa.Connection) -> None:
    """What compaction will ask of segments that know their rows by places alone.

    No row was moved so far, so that what is not in the catalog any more was deleted.
    """
    columns = {column["name"] for column in sa.inspect(connection).get_columns(segment.name)}
    if segment.c.next_row_id.name in columns:
        return  # a new lake
    for text in (
        "ALTER TABLE tailrace_segment ADD COLUMN next_row_id BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE tailrace_segment ADD COLUMN first_ids TEXT",
        _TAKEN_IN,
    ):
        connection.exec_driver_sql(text)
    firsts: dict[int, dict[str, int]] = {}
    for job_id, key, first in connection.exec_driver_sql(_FIRST_IDS):
        firsts.setdefault(job_id, {})[str(key)] = first
    c = segment.c
    for number, job_id, files in connection.execute(
        sa.select(c.segment_id, c.job_id, c.files)
    ).all():
        known = firsts.get(job_id, {})
        own = {key: known[key] for key in json.loads(files) if key in known}
        connection.execute(
            sa.update(segment).where(c.segment_id == number).values(first_ids=json.dumps(own))
        )


PART = Part(tables=metadata, steps={6: _begin_counting, 11: _add_row_ids}, views=system_views)
