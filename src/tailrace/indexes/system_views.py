"""The system view of indexes: what they are of, how far they are, and their size."""

from __future__ import annotations

from tailrace.propagation.system_views import ERROR, STATE, fill

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


def system_views(dialect: str) -> dict[str, str]:
    """The text of the view, by its name."""
    pieces = {
        "state": STATE,
        "error": ERROR[dialect],
        "columns": _COLUMNS[dialect],
        "options": _OPTIONS[dialect],
    }
    return {"indexes": fill(_INDEXES, pieces)}
