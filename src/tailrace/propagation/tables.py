"""The tables of propagation: jobs, what they read and did, and the nodes that run them.

The system views at the end say what jobs are, what they did, and how fresh their outputs are. Their
queries are texts, for the database itself; a piece in braces differs by dialect, or is used more
than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import sqlalchemy as sa

from tailrace.catalog.configuration import own_metadata
from tailrace.catalog.part import Int, Part, PartialIndex, Text, Time, new_views, since
from tailrace.store.lookup import DEFAULT_TENANT
from tailrace.store.tables import counter

metadata = sa.MetaData()

job = sa.Table(
    "tailrace_job",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("tenant", Text, nullable=False),
    # Schema and name, folded, of the table that the job is named under.
    sa.Column("home", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    # The consumer's kind: also in the spec, and here for those who look for it.
    sa.Column("kind", Text, nullable=False),
    sa.Column("spec", Text, nullable=False),
    sa.Column("state", Text, nullable=False),
    # The snapshot that the output reflects; NULL before the first iteration.
    sa.Column("watermark", Int),
    # Where the iteration that was begun ends: a retry has to end there too.
    sa.Column("claim_to", Int),
    # 1 if that iteration only brings the job closer to the others of its group.
    sa.Column("catches_up", Int, nullable=False),
    # The node that runs it; NULL at rest.
    sa.Column("node_id", Text),
    # Rises whenever what runs must be stopped: a commit with an older one is refused.
    sa.Column("epoch", Int, nullable=False),
    # The number of the last write of the row, out of one sequence for all jobs of the lake.
    sa.Column("lsn", Int, nullable=False),
    # Failures in a row, and when to try again.
    sa.Column("tries", Int, nullable=False),
    sa.Column("retry_at", Time),
    # JSON: the last error, and what the consumer remembers.
    sa.Column("status", Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("dropped_at", Time),
    sa.Index("tailrace_ix_job_lsn", "lsn"),
    info=since(2),
)
PartialIndex(
    "tailrace_ix_job_name",
    job.c.tenant,
    job.c.home,
    sa.func.lower(job.c.name),
    where=job.c.dropped_at.is_(None),
)
job_source = sa.Table(
    "tailrace_job_source",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    sa.Column("table_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_source", "table_id"),
    info=since(2),
)
node = sa.Table(
    "tailrace_node",
    metadata,
    sa.Column("node_id", Text, primary_key=True),
    # 1: until further notice; 0: only until something is fresh.
    sa.Column("serves", Int, nullable=False),
    sa.Column("host", Text, nullable=False),
    sa.Column("pid", Int, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
    # Why it stands back and claims nothing; NULL if it is well. Added in version 9.
    sa.Column("fault", Text),
    info=since(2),
)
iteration = sa.Table(
    "tailrace_iteration",
    metadata,
    sa.Column("iteration_id", Int, primary_key=True, autoincrement=False),
    sa.Column("job_id", Int, nullable=False),
    sa.Column("tenant", Text, nullable=False),
    sa.Column("sources", Text, nullable=False),  # JSON: the names of the tables
    sa.Column("from_snapshot", Int),
    sa.Column("to_snapshot", Int, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Column("strategy", Text),
    sa.Column("node_id", Text, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("ended_at", Time, nullable=False),
    sa.Column("day", Text, nullable=False),  # of its end, in UTC
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("rows_read", Int, nullable=False),
    sa.Column("bytes_read", Int, nullable=False),
    sa.Column("rows_written", Int, nullable=False),
    sa.Column("bytes_written", Int, nullable=False),
    sa.Column("error", Text),
    sa.Index("tailrace_ix_iteration_job", "job_id", "iteration_id"),
    sa.Index("tailrace_ix_iteration_day", "day", "tenant"),
    info=since(2),
)
usage = sa.Table(
    "tailrace_usage",
    metadata,
    sa.Column("tenant", Text, primary_key=True),
    sa.Column("day", Text, primary_key=True),
    sa.Column("iterations", Int, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("rows_read", Int, nullable=False),
    sa.Column("bytes_read", Int, nullable=False),
    sa.Column("rows_written", Int, nullable=False),
    sa.Column("bytes_written", Int, nullable=False),
    info=since(2),
)
version = sa.Table(
    "tailrace_version",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # The snapshot that made this version of a derived table.
    sa.Column("commit_snapshot", Int, primary_key=True, autoincrement=False),
    # The snapshot of the sources that it reflects.
    sa.Column("label", Int, nullable=False),
    info=since(3),
)
job_upstream = sa.Table(
    "tailrace_job_upstream",
    metadata,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    # A job whose output this one reads at the same label: brought there first, in one commit.
    sa.Column("upstream_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_upstream", "upstream_id"),
    info=since(3),
)


# --- system views -------------------------------------------------------------------------------

# By database: the error of a job's last try, which is in JSON, and the age of a moment in seconds.
ERROR = {
    "sqlite": "json_extract(j.status, '$.error.message')",
    "postgresql": "(j.status::json #>> '{error,message}')",
}
_AGE = {
    "sqlite": "(julianday('now') - julianday(substr(s.snapshot_time, 1, 23))) * 86400.0",
    "postgresql": "CAST(EXTRACT(EPOCH FROM (now() - s.snapshot_time)) AS DOUBLE PRECISION)",
}
# The job of a task's scope, which is JSON, too.
_TASK_JOB = {
    "sqlite": "json_extract(k.scope, '$.job')",
    "postgresql": "CAST(k.scope::json ->> 'job' AS BIGINT)",
}
# What users see in place of `completed`; `propagation.joblog.state_of` says the same.
STATE = """CASE WHEN j.state <> 'completed' THEN j.state WHEN j.tries > 0 THEN 'failing'
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
# as changed, for the same reason. What compaction moved has not changed: its files (`c`) have no
# row ids of their own, and those before them say that they were rewritten.
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
                         OR f.row_id_start IS NULL OR o.rewritten IS NOT NULL
                    THEN f.record_count ELSE 0 END) AS count_rows,
           MIN(CASE WHEN f.begin_snapshot > a.watermark AND f.row_id_start IS NOT NULL
                    THEN f.begin_snapshot ELSE f.end_snapshot END) AS since
    FROM stale a
    JOIN ducklake_data_file f ON f.table_id = a.table_id
    LEFT JOIN tailrace_file o ON o.data_file_id = f.data_file_id
    WHERE (f.begin_snapshot > a.watermark AND f.row_id_start IS NOT NULL)
       OR (f.end_snapshot > a.watermark AND o.rewritten IS NULL)
    GROUP BY a.job_id
), deletes AS (
    SELECT a.job_id, SUM(d.delete_count) AS count_rows,
           MIN(CASE WHEN d.begin_snapshot > a.watermark AND c.data_file_id IS NULL
                    THEN d.begin_snapshot ELSE a.changed_at END) AS since,
           MIN(CASE WHEN d.begin_snapshot > a.watermark AND c.data_file_id IS NULL
                    THEN d.begin_snapshot ELSE a.watermark + 1 END) AS after_watermark
    FROM stale a
    JOIN ducklake_delete_file d ON d.table_id = a.table_id
    LEFT JOIN ducklake_data_file c ON c.data_file_id = d.data_file_id
         AND c.row_id_start IS NULL AND c.begin_snapshot = d.begin_snapshot
    LEFT JOIN tailrace_file o ON o.data_file_id = d.data_file_id
    WHERE COALESCE(d.partial_max, d.begin_snapshot) > a.watermark
      AND (d.end_snapshot IS NULL OR o.rewritten IS NOT NULL)
      AND (c.data_file_id IS NULL OR d.partial_max IS NOT NULL)
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
# Tasks of the lake, and of tables that are gone, are the owner's.
_TASKS = """
SELECT k.task_id, COALESCE((
           SELECT o.tenant FROM ducklake_table d
           JOIN tailrace_schema o ON o.schema_id = d.schema_id
           WHERE d.table_id = k.table_id LIMIT 1), '{owner}') AS tenant,
       k.type, (
           SELECT s.schema_name || '.' || d.table_name FROM ducklake_table d
           JOIN ducklake_schema s ON s.schema_id = d.schema_id
           WHERE d.table_id = k.table_id ORDER BY d.begin_snapshot DESC LIMIT 1) AS object,
       j.name, k.state, k.priority, k.attempts, k.error, k.retry_at, k.executor AS node,
       k.created_at, k.modified_at, k.result
FROM tailrace_task k
LEFT JOIN tailrace_job j ON j.job_id = {task_job}
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


def system_views(dialect: str) -> dict[str, str]:
    """The texts of the views, by name."""
    views = {
        "jobs": _JOBS,
        "iterations": _ITERATIONS,
        "freshness": _FRESHNESS,
        "usage": _USAGE,
        "tasks": _TASKS,
    }
    pieces = {
        "state": STATE,
        "error": ERROR[dialect],
        "age": _AGE[dialect],
        "task_job": _TASK_JOB[dialect],
        "owner": DEFAULT_TENANT,
    }
    return {name: fill(text, pieces) for name, text in views.items()}


def fill(text: str, pieces: Mapping[str, str]) -> str:
    """A query with its pieces put in; a plain `format` would stumble over the braces of paths."""
    for name, piece in pieces.items():
        text = text.replace(f"{{{name}}}", piece)
    return text


# --- the catalog's part -------------------------------------------------------------------------


def _begin_counting(connection: sa.Connection) -> None:
    counters = [{"name": name, "value": 0} for name in ("job", "lsn", "iteration")]
    connection.execute(sa.insert(counter), counters)
    # What tells this lake from others, for keys that are given to systems outside.
    connection.execute(sa.insert(own_metadata).values(key="lake_id", value=uuid4().hex[:12]))


def _add_faults(connection: sa.Connection) -> None:
    """Why a node stands back."""
    # A new lake has the column already: its tables are made as they are today.
    columns = sa.inspect(connection).get_columns(node.name)
    if all(column["name"] != node.c.fault.name for column in columns):
        connection.exec_driver_sql("ALTER TABLE tailrace_node ADD COLUMN fault VARCHAR")


PART = Part(
    tables=metadata,
    steps={2: _begin_counting, 5: new_views, 7: new_views, 9: _add_faults, 10: new_views},
    views=system_views,
)
