"""The tables that the store adds to those of DuckLake."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.catalog.part import Int, Part, PartialIndex, Text, Time, since

metadata = sa.MetaData()

own_table = sa.Table(
    "tailrace_table",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # Column ids in key order, as a JSON list; "[]" for a table without a key.
    sa.Column("primary_key", Text, nullable=False),
    # The last commit that changed the table's rows: compaction and alterations don't move it.
    sa.Column("last_change_snapshot", Int, nullable=False),
    # The last commit that changed its columns, or dropped it.
    sa.Column("last_alter_snapshot", Int, nullable=False),
    # The last commit that moved rows to other files, which is no change: a compaction's.
    sa.Column("last_rewrite_snapshot", Int, nullable=False, server_default="0"),
    sa.Index("tailrace_ix_last_change", "last_change_snapshot"),
    sa.Index("tailrace_ix_last_rewrite", "last_rewrite_snapshot"),
    info=since(1),
)
own_column = sa.Table(
    "tailrace_column",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    sa.Column("column_id", Int, primary_key=True, autoincrement=False),
    # The column's name inside Parquet files: given once, kept for life, never given again.
    sa.Column("physical_name", Text, nullable=False),
    info=since(1),
)
own_file = sa.Table(
    "tailrace_file",
    metadata,
    sa.Column("data_file_id", Int, primary_key=True, autoincrement=False),
    # The value of the hidden column `_file` in every row of the file.
    sa.Column("file_key", Int, nullable=False),
    # What the file came from: append, upsert or compaction.
    sa.Column("op", Text, nullable=False),
    # The snapshot in which its rows went to files of a compaction, which is why it ended.
    sa.Column("rewritten", Int),
    info=since(1),
)
transaction = sa.Table(
    "tailrace_txn",
    metadata,
    sa.Column("txn_id", Text, primary_key=True),
    sa.Column("base_snapshot", Int, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
    info=since(1),
)
own_schema = sa.Table(
    "tailrace_schema",
    metadata,
    sa.Column("schema_id", Int, primary_key=True, autoincrement=False),
    # The account that the schema belongs to; without a row, the default tenant.
    sa.Column("tenant", Text, nullable=False),
    info=since(2),
)
# Which tables a job derives or writes to. To the store, a job is only a number: the owner.
output = sa.Table(
    "tailrace_job_output",
    metadata,
    sa.Column("job_id", Int, key="owner", primary_key=True, autoincrement=False),
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # 1: derived by the owner, closed to others. 0: an ordinary table that it writes to.
    sa.Column("owned", Int, nullable=False),
    info=since(2),
)
PartialIndex(
    "tailrace_ix_job_output",
    output.c.table_id,
    where=output.c.owned == sa.literal_column("1"),
)
task = sa.Table(
    "tailrace_task",
    metadata,
    # What is to be done with a table; one of a kind for a table at a time.
    sa.Column("kind", Text, primary_key=True),
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # For a purge: what ended at or before this snapshot is to go.
    sa.Column("snapshot", Int, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    info=since(4),
)
purge = sa.Table(
    "tailrace_purge",
    metadata,
    sa.Column("purge_id", Text, primary_key=True),
    sa.Column("at", Time, nullable=False),
    # The oldest snapshot that it left.
    sa.Column("horizon", Int, nullable=False),
    # What kept it from going further, if that was not the retention.
    sa.Column("held_by", Text),
    sa.Column("snapshots", Int, nullable=False),
    # Data and delete files that it took out of the catalog, and their size.
    sa.Column("files", Int, nullable=False),
    sa.Column("bytes", Int, nullable=False),
    # Objects that it deleted: of files that it, or a purge before it, took out.
    sa.Column("objects", Int, nullable=False),
    info=since(4),
)
# Columns of which every value has to be a vector of one dimension, of finite numbers.
vector_column = sa.Table(
    "tailrace_vector_column",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    sa.Column("column_id", Int, primary_key=True, autoincrement=False),
    sa.Column("dimension", Int, nullable=False),
    info=since(6),
)
commit = sa.Table(
    "tailrace_commit",
    metadata,
    sa.Column("txn_id", Text, primary_key=True),
    sa.Column("tenant", Text, nullable=False),
    # The snapshot that it created; if none, the newest at the time.
    sa.Column("snapshot", Int, nullable=False),
    # What the caller gave it, so that it is done only once.
    sa.Column("idempotency_key", Text),
    sa.Column("committed_at", Time, nullable=False),
    sa.Index("tailrace_ix_commit_snapshot", "snapshot"),
    info=since(8),
)
PartialIndex(
    "tailrace_ix_commit_key",
    commit.c.tenant,
    commit.c.idempotency_key,
    where=commit.c.idempotency_key.is_not(None),
)

_SNAPSHOTS = """
SELECT s.snapshot_id, s.snapshot_time, c.changes_made AS changes
FROM ducklake_snapshot s
JOIN ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id
"""


def _add_rewrites(connection: sa.Connection) -> None:
    """What compaction notes about files and tables."""
    # A new lake has the columns already: its tables are made as they are today.
    columns = {column["name"] for column in sa.inspect(connection).get_columns(own_file.name)}
    if own_file.c.rewritten.name not in columns:
        for text in (
            "ALTER TABLE tailrace_file ADD COLUMN rewritten BIGINT",
            "ALTER TABLE tailrace_table ADD COLUMN last_rewrite_snapshot BIGINT NOT NULL DEFAULT 0",
            "CREATE INDEX tailrace_ix_last_rewrite ON tailrace_table (last_rewrite_snapshot)",
        ):
            connection.exec_driver_sql(text)


PART = Part(
    tables=metadata,
    steps={11: _add_rewrites},
    views=lambda _dialect: {"snapshots": _SNAPSHOTS},
)
