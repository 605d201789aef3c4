"""What people ask a lake about itself, as views in its database.

They are read by `SELECT … FROM tailrace.jobs`, and by every other program that can read the
catalog's database; so they are in the database, and not in a program.
"""

from __future__ import annotations

import sqlalchemy as sa

PREFIX = "tailrace_sys_"

# By database: the error of a job's last try, which is in JSON, and the age of a moment in seconds.
_ERROR = {
    "sqlite": "json_extract(j.status, '$.error.message')",
    "postgresql": "(j.status::json #>> '{error,message}')",
}
_AGE = {
    "sqlite": "(julianday('now') - julianday(substr(s.snapshot_time, 1, 23))) * 86400.0",
    "postgresql": "CAST(EXTRACT(EPOCH FROM (now() - s.snapshot_time)) AS DOUBLE PRECISION)",
}
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
# What users see in place of `completed`; `propagation.job_rows.state_of` says the same.
_STATE = """CASE WHEN j.state <> 'completed' THEN j.state WHEN j.tries > 0 THEN 'failing'
            WHEN j.watermark IS NULL THEN 'new' ELSE 'idle' END AS state"""
_JOBS = """
SELECT j.job_id, j.tenant, j.home AS object, j.name, j.kind, {state}, j.watermark,
       j.tries, {error} AS error, j.retry_at, j.node_id AS running_on, j.created_at
FROM tailrace_job j
WHERE j.dropped_at IS NULL
"""
_ITERATIONS = """
SELECT i.iteration_id, i.tenant, j.home AS object, j.name, i.strategy, i.from_snapshot,
       i.to_snapshot, i.started_at, i.ended_at, i.seconds, i.rows_read, i.bytes_read,
       i.rows_written, i.bytes_written, i.error
FROM tailrace_iteration i
JOIN tailrace_job j ON j.job_id = i.job_id
"""
# How far jobs are, as `propagation.freshness` says it. `since` is when the first change came that
# is missing in the output. Of deletes that went into a file of older ones, only the last is known:
# they are counted from that one, but leave the watermark where it is. The rows are at most as many
# as changed, for the same reason.
_FRESHNESS = """
WITH stale AS (
    SELECT j.job_id, COALESCE(j.watermark, -1) AS watermark, s.table_id,
           CASE WHEN t.last_change_snapshot > COALESCE(j.watermark, -1)
                THEN t.last_change_snapshot ELSE g.dropped_at END AS changed_at
    FROM tailrace_job j
    JOIN tailrace_job_source s ON s.job_id = j.job_id
    JOIN tailrace_table t ON t.table_id = s.table_id
    LEFT JOIN (SELECT d.table_id, MAX(d.end_snapshot) AS dropped_at FROM ducklake_table d
               GROUP BY d.table_id HAVING COUNT(d.end_snapshot) = COUNT(d.table_id)) g
           ON g.table_id = s.table_id
    WHERE j.dropped_at IS NULL
      AND (t.last_change_snapshot > COALESCE(j.watermark, -1) OR g.table_id IS NOT NULL)
), behind AS (
    SELECT a.job_id, MIN(a.changed_at) AS since FROM stale a GROUP BY a.job_id
), files AS (
    SELECT a.job_id,
           SUM(CASE WHEN f.begin_snapshot <= a.watermark OR f.end_snapshot IS NULL
                    THEN f.record_count ELSE 0 END) AS count_rows,
           MIN(CASE WHEN f.begin_snapshot > a.watermark THEN f.begin_snapshot
                    ELSE f.end_snapshot END) AS since
    FROM stale a JOIN ducklake_data_file f ON f.table_id = a.table_id
    WHERE f.begin_snapshot > a.watermark OR f.end_snapshot > a.watermark
    GROUP BY a.job_id
), deletes AS (
    SELECT a.job_id, SUM(d.delete_count) AS count_rows,
           MIN(CASE WHEN d.begin_snapshot > a.watermark THEN d.begin_snapshot
                    ELSE a.changed_at END) AS since,
           MIN(CASE WHEN d.begin_snapshot > a.watermark THEN d.begin_snapshot
                    ELSE a.watermark + 1 END) AS after_watermark
    FROM stale a JOIN ducklake_delete_file d ON d.table_id = a.table_id
    WHERE COALESCE(d.partial_max, d.begin_snapshot) > a.watermark AND d.end_snapshot IS NULL
    GROUP BY a.job_id
), lags AS (
    SELECT b.job_id,
           CASE WHEN COALESCE(f.since, b.since) <= COALESCE(d.since, b.since)
                THEN COALESCE(f.since, b.since) ELSE COALESCE(d.since, b.since) END AS since,
           CASE WHEN d.after_watermark IS NULL OR f.since <= d.after_watermark
                THEN f.since ELSE d.after_watermark END - 1 AS until,
           CAST(COALESCE(f.count_rows, 0) + COALESCE(d.count_rows, 0) AS BIGINT) AS count_rows
    FROM behind b
    LEFT JOIN files f ON f.job_id = b.job_id
    LEFT JOIN deletes d ON d.job_id = b.job_id
), newest AS (
    SELECT MAX(snapshot_id) AS snapshot_id FROM ducklake_snapshot
)
SELECT j.tenant, j.home AS object, j.name, j.kind, {state},
       CASE WHEN b.job_id IS NULL THEN n.snapshot_id
            WHEN b.until > j.watermark THEN b.until ELSE j.watermark END AS watermark,
       CASE WHEN b.job_id IS NULL THEN 0 ELSE n.snapshot_id - b.since + 1 END AS lag_snapshots,
       COALESCE(b.count_rows, 0) AS lag_rows,
       CASE WHEN b.job_id IS NULL THEN 0.0 ELSE {age} END AS lag_seconds
FROM tailrace_job j
CROSS JOIN newest n
LEFT JOIN lags b ON b.job_id = j.job_id
LEFT JOIN ducklake_snapshot s ON s.snapshot_id = b.since
WHERE j.dropped_at IS NULL
"""
_SNAPSHOTS = """
SELECT s.snapshot_id, s.snapshot_time, c.changes_made AS changes
FROM ducklake_snapshot s
JOIN ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id
"""
# Days that were added up, and the iterations of those that were not. Without UNION: DuckDB reads
# the text of SQLite's views, and writes that with parentheses that SQLite does not take.
_USAGE = """
SELECT COALESCE(u.tenant, i.tenant) AS tenant, COALESCE(u.day, i.day) AS day,
       CAST(SUM(COALESCE(u.iterations, 1)) AS BIGINT) AS iterations,
       SUM(COALESCE(u.seconds, i.seconds)) AS seconds,
       CAST(SUM(COALESCE(u.rows_read, i.rows_read)) AS BIGINT) AS rows_read,
       CAST(SUM(COALESCE(u.bytes_read, i.bytes_read)) AS BIGINT) AS bytes_read,
       CAST(SUM(COALESCE(u.rows_written, i.rows_written)) AS BIGINT) AS rows_written,
       CAST(SUM(COALESCE(u.bytes_written, i.bytes_written)) AS BIGINT) AS bytes_written
FROM (VALUES (1), (2)) AS part
LEFT JOIN tailrace_usage u ON part.column1 = 1
LEFT JOIN tailrace_iteration i ON part.column1 = 2
WHERE u.tenant IS NOT NULL OR i.tenant IS NOT NULL
GROUP BY COALESCE(u.tenant, i.tenant), COALESCE(u.day, i.day)
"""
# Rows that an index does not have yet are in files that came after the snapshot it reflects.
_INDEXES = """
WITH parts AS (
    SELECT g.job_id, SUM(g.row_count) AS count_rows, SUM(g.size_bytes) AS size,
           SUM(CASE WHEN g.path <> '' THEN 1 ELSE 0 END) AS segments
    FROM tailrace_segment g WHERE g.end_snapshot IS NULL GROUP BY g.job_id
), centroids AS (
    SELECT c.job_id, SUM(c.size_bytes) AS size FROM tailrace_centroids c GROUP BY c.job_id
), deletes AS (
    SELECT d.data_file_id, SUM(d.delete_count) AS count_rows
    FROM ducklake_delete_file d WHERE d.end_snapshot IS NULL GROUP BY d.data_file_id
), pending AS (
    SELECT j.job_id, SUM(f.record_count - COALESCE(d.count_rows, 0)) AS count_rows
    FROM tailrace_job j
    JOIN tailrace_job_source s ON s.job_id = j.job_id
    JOIN ducklake_data_file f ON f.table_id = s.table_id
    LEFT JOIN deletes d ON d.data_file_id = f.data_file_id
    WHERE j.kind IN ('fulltext', 'vector') AND j.dropped_at IS NULL
      AND f.begin_snapshot > COALESCE(j.watermark, -1) AND f.end_snapshot IS NULL
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
# In this order: the last stands on another.
VIEWS = {
    "jobs": _JOBS,
    "iterations": _ITERATIONS,
    "freshness": _FRESHNESS,
    "snapshots": _SNAPSHOTS,
    "usage": _USAGE,
    "indexes": _INDEXES,
}


def drop_all(connection: sa.Connection) -> None:
    """Drop the views, as many of them as there are."""
    for name in reversed(VIEWS):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {PREFIX}{name}")


def create_all(connection: sa.Connection) -> None:
    """Create the views, in place of those that an older version made."""
    drop_all(connection)
    kind = connection.dialect.name
    pieces = {
        "state": _STATE,
        "error": _ERROR[kind],
        "age": _AGE[kind],
        "columns": _COLUMNS[kind],
        "options": _OPTIONS[kind],
    }
    for name, query in VIEWS.items():
        text = query
        for piece, meant in pieces.items():
            text = text.replace(f"{{{piece}}}", meant)
        connection.exec_driver_sql(f"CREATE VIEW {PREFIX}{name} AS {text}")
