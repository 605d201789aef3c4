"""The tables of the catalog: those of the DuckLake 1.0 format, and ours beside them.

Owned here: every table and index, defined once; all SQL in the project is built from these.
The DuckLake tables must keep the columns that the format prescribes, in its order, because
other engines read them. Ours begin with `tailrace_`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata = sa.MetaData()

Int = sa.BigInteger
Text = sa.String
# DuckDB declares booleans as BIGINT in a SQLite catalog and as BOOLEAN elsewhere.
Bool = sa.Boolean().with_variant(sa.BigInteger(), "sqlite")
Uuid = sa.String().with_variant(postgresql.UUID(as_uuid=False), "postgresql")


class Time(TypeDecorator[datetime]):
    """A point in time: `timestamptz` where there is one, DuckDB's text form in SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        plain = sa.String() if dialect.name == "sqlite" else sa.DateTime(timezone=True)
        return dialect.type_descriptor(plain)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        return datetime.fromisoformat(value)


def _table(name: str, *columns: tuple[str, Any], **constraints: bool) -> sa.Table:
    made = [
        sa.Column(column, kind, primary_key=constraints.get(column, False))
        for column, kind in columns
    ]
    return sa.Table(name, metadata, *made)


def _span() -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The life of a row: visible at snapshots s with begin <= s < end."""
    return ("begin_snapshot", Int), ("end_snapshot", Int)


# --- DuckLake 1.0 -------------------------------------------------------------------------------

lake_metadata = _table(
    "ducklake_metadata", ("key", Text), ("value", Text), ("scope", Text), ("scope_id", Int)
)
snapshot = _table(
    "ducklake_snapshot",
    ("snapshot_id", Int),
    ("snapshot_time", Time),
    ("schema_version", Int),
    ("next_catalog_id", Int),
    ("next_file_id", Int),
    snapshot_id=True,
)
snapshot_changes = _table(
    "ducklake_snapshot_changes",
    ("snapshot_id", Int),
    ("changes_made", Text),
    ("author", Text),
    ("commit_message", Text),
    ("commit_extra_info", Text),
    snapshot_id=True,
)
schema = _table(
    "ducklake_schema",
    ("schema_id", Int),
    ("schema_uuid", Uuid),
    *_span(),
    ("schema_name", Text),
    ("path", Text),
    ("path_is_relative", Bool),
    schema_id=True,
)
table = _table(
    "ducklake_table",
    ("table_id", Int),
    ("table_uuid", Uuid),
    *_span(),
    ("schema_id", Int),
    ("table_name", Text),
    ("path", Text),
    ("path_is_relative", Bool),
)
view = _table(
    "ducklake_view",
    ("view_id", Int),
    ("view_uuid", Uuid),
    *_span(),
    ("schema_id", Int),
    ("view_name", Text),
    ("dialect", Text),
    ("sql", Text),
    ("column_aliases", Text),
)
tag = _table("ducklake_tag", ("object_id", Int), *_span(), ("key", Text), ("value", Text))
column_tag = _table(
    "ducklake_column_tag",
    ("table_id", Int),
    ("column_id", Int),
    *_span(),
    ("key", Text),
    ("value", Text),
)
data_file = _table(
    "ducklake_data_file",
    ("data_file_id", Int),
    ("table_id", Int),
    *_span(),
    ("file_order", Int),
    ("path", Text),
    ("path_is_relative", Bool),
    ("file_format", Text),
    ("record_count", Int),
    ("file_size_bytes", Int),
    ("footer_size", Int),
    ("row_id_start", Int),
    ("partition_id", Int),
    ("encryption_key", Text),
    ("mapping_id", Int),
    ("partial_max", Int),
    data_file_id=True,
)
file_column_stats = _table(
    "ducklake_file_column_stats",
    ("data_file_id", Int),
    ("table_id", Int),
    ("column_id", Int),
    ("column_size_bytes", Int),
    ("value_count", Int),
    ("null_count", Int),
    ("min_value", Text),
    ("max_value", Text),
    ("contains_nan", Bool),
    ("extra_stats", Text),
)
_table(
    "ducklake_file_variant_stats",
    ("data_file_id", Int),
    ("table_id", Int),
    ("column_id", Int),
    ("variant_path", Text),
    ("shredded_type", Text),
    ("column_size_bytes", Int),
    ("value_count", Int),
    ("null_count", Int),
    ("min_value", Text),
    ("max_value", Text),
    ("contains_nan", Bool),
    ("extra_stats", Text),
)
delete_file = _table(
    "ducklake_delete_file",
    ("delete_file_id", Int),
    ("table_id", Int),
    *_span(),
    ("data_file_id", Int),
    ("path", Text),
    ("path_is_relative", Bool),
    ("format", Text),
    ("delete_count", Int),
    ("file_size_bytes", Int),
    ("footer_size", Int),
    ("encryption_key", Text),
    ("partial_max", Int),
    delete_file_id=True,
)
column = _table(
    "ducklake_column",
    ("column_id", Int),
    *_span(),
    ("table_id", Int),
    ("column_order", Int),
    ("column_name", Text),
    ("column_type", Text),
    ("initial_default", Text),
    ("default_value", Text),
    ("nulls_allowed", Bool),
    ("parent_column", Int),
    ("default_value_type", Text),
    ("default_value_dialect", Text),
)
table_stats = _table(
    "ducklake_table_stats",
    ("table_id", Int),
    ("record_count", Int),
    ("next_row_id", Int),
    ("file_size_bytes", Int),
)
# Left empty: readers answer min and max from it, so that a wrong row is a wrong answer.
_table(
    "ducklake_table_column_stats",
    ("table_id", Int),
    ("column_id", Int),
    ("contains_null", Bool),
    ("contains_nan", Bool),
    ("min_value", Text),
    ("max_value", Text),
    ("extra_stats", Text),
)
_table(
    "ducklake_partition_info",
    ("partition_id", Int),
    ("table_id", Int),
    *_span(),
)
_table(
    "ducklake_partition_column",
    ("partition_id", Int),
    ("table_id", Int),
    ("partition_key_index", Int),
    ("column_id", Int),
    ("transform", Text),
)
_table(
    "ducklake_file_partition_value",
    ("data_file_id", Int),
    ("table_id", Int),
    ("partition_key_index", Int),
    ("partition_value", Text),
)
scheduled_for_deletion = _table(
    "ducklake_files_scheduled_for_deletion",
    ("data_file_id", Int),
    ("path", Text),
    ("path_is_relative", Bool),
    ("schedule_start", Time),
)
_table(
    "ducklake_inlined_data_tables", ("table_id", Int), ("table_name", Text), ("schema_version", Int)
)
_table("ducklake_column_mapping", ("mapping_id", Int), ("table_id", Int), ("type", Text))
_table(
    "ducklake_name_mapping",
    ("mapping_id", Int),
    ("column_id", Int),
    ("source_name", Text),
    ("target_field_id", Int),
    ("parent_column", Int),
    ("is_partition", Bool),
)
schema_versions = _table(
    "ducklake_schema_versions", ("begin_snapshot", Int), ("schema_version", Int), ("table_id", Int)
)
_table("ducklake_macro", ("schema_id", Int), ("macro_id", Int), ("macro_name", Text), *_span())
_table(
    "ducklake_macro_impl",
    ("macro_id", Int),
    ("impl_id", Int),
    ("dialect", Text),
    ("sql", Text),
    ("type", Text),
)
_table(
    "ducklake_macro_parameters",
    ("macro_id", Int),
    ("impl_id", Int),
    ("column_id", Int),
    ("parameter_name", Text),
    ("parameter_type", Text),
    ("default_value", Text),
    ("default_value_type", Text),
)
_table("ducklake_sort_info", ("sort_id", Int), ("table_id", Int), *_span())
_table(
    "ducklake_sort_expression",
    ("sort_id", Int),
    ("table_id", Int),
    ("sort_key_index", Int),
    ("expression", Text),
    ("dialect", Text),
    ("sort_direction", Text),
    ("null_order", Text),
)

sa.Index("tailrace_ix_schema_name", sa.func.lower(schema.c.schema_name))
sa.Index("tailrace_ix_table_id", table.c.table_id)
sa.Index("tailrace_ix_table_name", table.c.schema_id, sa.func.lower(table.c.table_name))
sa.Index("tailrace_ix_view_name", view.c.schema_id, sa.func.lower(view.c.view_name))
sa.Index("tailrace_ix_column", column.c.table_id)
sa.Index("tailrace_ix_file_begin", data_file.c.table_id, data_file.c.begin_snapshot)
sa.Index("tailrace_ix_file_end", data_file.c.table_id, data_file.c.end_snapshot)
sa.Index("tailrace_ix_delete_table", delete_file.c.table_id)
sa.Index("tailrace_ix_delete_file", delete_file.c.data_file_id)
sa.Index("tailrace_ix_stats", file_column_stats.c.data_file_id)
sa.Index("tailrace_ix_table_stats", table_stats.c.table_id)
sa.Index("tailrace_ix_tag", tag.c.object_id)

# --- Tailrace -----------------------------------------------------------------------------------

own_metadata = sa.Table(
    "tailrace_metadata",
    metadata,
    sa.Column("key", Text, primary_key=True),
    sa.Column("value", Text, nullable=False),
)
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
    sa.Index("tailrace_ix_last_change", "last_change_snapshot"),
)
own_column = sa.Table(
    "tailrace_column",
    metadata,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    sa.Column("column_id", Int, primary_key=True, autoincrement=False),
    # The column's name inside Parquet files: given once, kept for life, never given again.
    sa.Column("physical_name", Text, nullable=False),
)
own_file = sa.Table(
    "tailrace_file",
    metadata,
    sa.Column("data_file_id", Int, primary_key=True, autoincrement=False),
    # The value of the hidden column `_file` in every row of the file.
    sa.Column("file_key", Int, nullable=False),
    # What the file came from: append, upsert or compaction.
    sa.Column("op", Text, nullable=False),
)
transaction = sa.Table(
    "tailrace_txn",
    metadata,
    sa.Column("txn_id", Text, primary_key=True),
    sa.Column("base_snapshot", Int, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
)

# --- Propagation: the tables of version 2 -------------------------------------------------------

# Apart, because a migration creates the tables of its version and no others.
propagation = sa.MetaData()

own_schema = sa.Table(
    "tailrace_schema",
    propagation,
    sa.Column("schema_id", Int, primary_key=True, autoincrement=False),
    # The account that the schema belongs to; without a row, the default tenant.
    sa.Column("tenant", Text, nullable=False),
)
counter = sa.Table(
    "tailrace_counter",
    propagation,
    sa.Column("name", Text, primary_key=True),
    sa.Column("value", Int, nullable=False),
)
job = sa.Table(
    "tailrace_job",
    propagation,
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
)
_not_dropped = job.c.dropped_at.is_(None)
sa.Index(
    "tailrace_ix_job_name",
    job.c.tenant,
    job.c.home,
    sa.func.lower(job.c.name),
    unique=True,
    sqlite_where=_not_dropped,
    postgresql_where=_not_dropped,
)
job_source = sa.Table(
    "tailrace_job_source",
    propagation,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    sa.Column("table_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_source", "table_id"),
)
job_output = sa.Table(
    "tailrace_job_output",
    propagation,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # 1: derived, made and dropped with the job, closed to users. 0: a table that it writes to.
    sa.Column("owned", Int, nullable=False),
)
_owned = job_output.c.owned == sa.literal_column("1")
sa.Index(
    "tailrace_ix_job_output",
    job_output.c.table_id,
    unique=True,
    sqlite_where=_owned,
    postgresql_where=_owned,
)
node = sa.Table(
    "tailrace_node",
    propagation,
    sa.Column("node_id", Text, primary_key=True),
    # 1: until further notice; 0: only until something is fresh.
    sa.Column("serves", Int, nullable=False),
    sa.Column("host", Text, nullable=False),
    sa.Column("pid", Int, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
    # Why it stands back and claims nothing; NULL if it is well. Of version 8.
    sa.Column("fault", Text),
)
iteration = sa.Table(
    "tailrace_iteration",
    propagation,
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
)
usage = sa.Table(
    "tailrace_usage",
    propagation,
    sa.Column("tenant", Text, primary_key=True),
    sa.Column("day", Text, primary_key=True),
    sa.Column("iterations", Int, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("rows_read", Int, nullable=False),
    sa.Column("bytes_read", Int, nullable=False),
    sa.Column("rows_written", Int, nullable=False),
    sa.Column("bytes_written", Int, nullable=False),
)

# --- Views: the tables of version 3 -------------------------------------------------------------

views = sa.MetaData()

version = sa.Table(
    "tailrace_version",
    views,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # The snapshot that made this version of a derived table.
    sa.Column("commit_snapshot", Int, primary_key=True, autoincrement=False),
    # The snapshot of the sources that it reflects.
    sa.Column("label", Int, nullable=False),
)
job_upstream = sa.Table(
    "tailrace_job_upstream",
    views,
    sa.Column("job_id", Int, primary_key=True, autoincrement=False),
    sa.Column("position", Int, primary_key=True, autoincrement=False),
    # A job whose output this one reads at the same label: brought there first, in one commit.
    sa.Column("upstream_id", Int, nullable=False),
    sa.Index("tailrace_ix_job_upstream", "upstream_id"),
)

# --- Upkeep: the tables of version 4 ------------------------------------------------------------

upkeep = sa.MetaData()

task = sa.Table(
    "tailrace_task",
    upkeep,
    # What is to be done with a table; one of a kind for a table at a time.
    sa.Column("kind", Text, primary_key=True),
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    # For a purge: what ended at or before this snapshot is to go.
    sa.Column("snapshot", Int, nullable=False),
    sa.Column("created_at", Time, nullable=False),
)
purge = sa.Table(
    "tailrace_purge",
    upkeep,
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
)

# --- Indexes: the tables of version 6 -----------------------------------------------------------

indexes = sa.MetaData()

segment = sa.Table(
    "tailrace_segment",
    indexes,
    sa.Column("segment_id", Int, primary_key=True, autoincrement=False),
    # The job of the index that it is a part of.
    sa.Column("job_id", Int, nullable=False),
    # It is a part of the index at the snapshots s of the table with begin <= s < end.
    *(sa.Column(name, kind) for name, kind in _span()),
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
)
centroids = sa.Table(
    "tailrace_centroids",
    indexes,
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
)
# Columns of which every value has to be a vector of one dimension, of finite numbers.
vector_column = sa.Table(
    "tailrace_vector_column",
    indexes,
    sa.Column("table_id", Int, primary_key=True, autoincrement=False),
    sa.Column("column_id", Int, primary_key=True, autoincrement=False),
    sa.Column("dimension", Int, nullable=False),
)

# --- Outcomes of commits: the tables of version 8 -----------------------------------------------

outcomes = sa.MetaData()

commit = sa.Table(
    "tailrace_commit",
    outcomes,
    sa.Column("txn_id", Text, primary_key=True),
    sa.Column("tenant", Text, nullable=False),
    # The snapshot that it made; the newest of then, if it made none.
    sa.Column("snapshot", Int, nullable=False),
    # What the caller named it, so as not to do it twice.
    sa.Column("idempotency_key", Text),
    sa.Column("committed_at", Time, nullable=False),
    sa.Index("tailrace_ix_commit_snapshot", "snapshot"),
)
_is_keyed = commit.c.idempotency_key.is_not(None)
sa.Index(
    "tailrace_ix_commit_key",
    commit.c.tenant,
    commit.c.idempotency_key,
    unique=True,
    sqlite_where=_is_keyed,
    postgresql_where=_is_keyed,
)
