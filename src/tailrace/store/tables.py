"""The tables that the store adds to those of DuckLake."""

from __future__ import annotations

import json

import sqlalchemy as sa

from tailrace.catalog.part import Int, Part, PartialIndex, Text, Time, since

metadata = sa.MetaData()

# Sequences: of tasks, and how far nodes have looked for what is due.
TASKS, LOOKED = "task", "looked"

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
# Sequences of numbers that are never given twice.
counter = sa.Table(
    "tailrace_counter",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("value", Int, nullable=False),
    info=since(2),
)
# Work in the background that is no iteration; until version 10, a table of another shape.
task = sa.Table(
    "tailrace_task",
    metadata,
    sa.Column("task_id", Int, primary_key=True, autoincrement=False),
    sa.Column("type", Text, nullable=False),
    # What it works on: the lake if there is no table, else all of the table, or a part of it.
    sa.Column("table_id", Int),
    sa.Column("scope", Text, nullable=False),  # JSON: which files of the table, or which job
    sa.Column("spec", Text, nullable=False),  # JSON: what to do, in the words of its type
    sa.Column("state", Text, nullable=False),
    # The highest is taken first, and of those with the same the oldest.
    sa.Column("priority", Int, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("modified_at", Time, nullable=False),
    # After a failure: not to be taken before.
    sa.Column("retry_at", Time),
    # The node that runs it, or has run it.
    sa.Column("executor", Text),
    # Rises whenever what runs must no longer write: a commit with an older one is refused.
    sa.Column("epoch", Int, nullable=False),
    # How often it was begun.
    sa.Column("attempts", Int, nullable=False),
    sa.Column("error", Text),
    sa.Column("result", Text),  # JSON
    sa.Index("tailrace_ix_task_state", "state", "priority"),
    sa.Index("tailrace_ix_task_table", "table_id"),
    info=since(11),
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
    # 1: by a process that compares the catalog's version. Those of before version 11 say nothing,
    # and would take rows that moved for rows that are gone: a lake that was upgraded refuses them.
    sa.Column("writer", Int, nullable=False, default=1),
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


def _widen_tasks(connection: sa.Connection) -> None:
    """One table for all tasks, where there was one for what purges had left of tables."""
    connection.execute(sa.insert(counter), [{"name": name, "value": 0} for name in (TASKS, LOOKED)])
    columns = {column["name"] for column in sa.inspect(connection).get_columns(task.name)}
    if task.c.task_id.name in columns:
        return
    # The name was taken, so the new table was not made.
    text = "SELECT table_id, created_at FROM tailrace_task WHERE kind = 'purge'"
    left = connection.execute(sa.text(text).columns(table_id=Int, created_at=Time))
    rows = [
        {
            "task_id": number,
            "type": "clean",
            "table_id": row.table_id,
            "scope": "{}",
            "spec": json.dumps({"purge": "an older version's"}),
            "state": "pending",
            "priority": 0,
            "created_at": row.created_at,
            "modified_at": row.created_at,
            "epoch": 0,
            "attempts": 0,
        }
        for number, row in enumerate(left.all(), 1)
    ]
    connection.exec_driver_sql("DROP TABLE tailrace_task")
    task.create(connection)
    if rows:
        connection.execute(sa.insert(task), rows)
        counted = sa.update(counter).where(counter.c.name == TASKS)
        connection.execute(counted.values(value=len(rows)))


_REFUSE_OLD = {
    "sqlite": """
        CREATE TRIGGER tailrace_no_old_writer BEFORE INSERT ON tailrace_commit
        WHEN NEW.writer IS NULL BEGIN
            SELECT RAISE(ABORT, 'this lake was upgraded: upgrade the package');
        END
        """,
    "postgresql": """
        ALTER TABLE tailrace_commit ADD CONSTRAINT this_lake_was_upgraded
        CHECK (writer IS NOT NULL) NOT VALID
        """,
}


def _refuse_old_writers(connection: sa.Connection) -> None:
    """End the commits of processes that have the lake open, and know nothing of this version."""
    columns = {column["name"] for column in sa.inspect(connection).get_columns(commit.name)}
    if commit.c.writer.name not in columns:
        connection.exec_driver_sql("ALTER TABLE tailrace_commit ADD COLUMN writer BIGINT")
        connection.exec_driver_sql(_REFUSE_OLD[connection.dialect.name])


def _to_version_11(connection: sa.Connection) -> None:
    _add_rewrites(connection)
    _widen_tasks(connection)
    _refuse_old_writers(connection)


PART = Part(
    tables=metadata,
    steps={11: _to_version_11},
    views=lambda _dialect: {"snapshots": _SNAPSHOTS},
)
