"""The tables of the DuckLake 1.0 format, as it prescribes them.

Always true: they have the format's columns in its order, because other engines read them. What
Tailrace adds is in tables of its own, which begin with `tailrace_`; here it adds indexes only.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from tailrace.catalog.part import Bool, Int, Part, Text, Time, Uuid, since

FORMAT_VERSION = "1.0"

metadata = sa.MetaData()

# The life of a row: visible at snapshots s with begin <= s < end.
_SPAN = (("begin_snapshot", Int), ("end_snapshot", Int))


def _table(name: str, *columns: tuple[str, Any], **keys: bool) -> sa.Table:
    every = [
        sa.Column(column, kind, primary_key=keys.get(column, False)) for column, kind in columns
    ]
    return sa.Table(name, metadata, *every, info=since(1))


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
    *_SPAN,
    ("schema_name", Text),
    ("path", Text),
    ("path_is_relative", Bool),
    schema_id=True,
)
table = _table(
    "ducklake_table",
    ("table_id", Int),
    ("table_uuid", Uuid),
    *_SPAN,
    ("schema_id", Int),
    ("table_name", Text),
    ("path", Text),
    ("path_is_relative", Bool),
)
view = _table(
    "ducklake_view",
    ("view_id", Int),
    ("view_uuid", Uuid),
    *_SPAN,
    ("schema_id", Int),
    ("view_name", Text),
    ("dialect", Text),
    ("sql", Text),
    ("column_aliases", Text),
)
tag = _table("ducklake_tag", ("object_id", Int), *_SPAN, ("key", Text), ("value", Text))
column_tag = _table(
    "ducklake_column_tag",
    ("table_id", Int),
    ("column_id", Int),
    *_SPAN,
    ("key", Text),
    ("value", Text),
)
data_file = _table(
    "ducklake_data_file",
    ("data_file_id", Int),
    ("table_id", Int),
    *_SPAN,
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
    *_SPAN,
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
    *_SPAN,
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
    *_SPAN,
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
_table("ducklake_macro", ("schema_id", Int), ("macro_id", Int), ("macro_name", Text), *_SPAN)
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
_table("ducklake_sort_info", ("sort_id", Int), ("table_id", Int), *_SPAN)
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

PART = Part(tables=metadata)


def enter_first_rows(
    connection: sa.Connection, *, data_path: str, now: datetime, creator: str
) -> None:
    """Make the tables an empty lake: its settings, the schema `main`, and snapshot 0."""
    settings = {
        "version": FORMAT_VERSION,
        "created_by": creator,
        "data_path": data_path,
        "encrypted": "false",
        # We are the only writer, and write rows to Parquet only.
        "data_inlining_row_limit": "0",
    }
    connection.execute(
        sa.insert(lake_metadata), [{"key": k, "value": v} for k, v in settings.items()]
    )
    connection.execute(
        sa.insert(snapshot).values(
            snapshot_id=0, snapshot_time=now, schema_version=0, next_catalog_id=1, next_file_id=0
        )
    )
    connection.execute(
        sa.insert(snapshot_changes).values(snapshot_id=0, changes_made='created_schema:"main"')
    )
    connection.execute(
        sa.insert(schema).values(
            schema_id=0,
            schema_uuid=str(uuid4()),
            begin_snapshot=0,
            schema_name="main",
            path="main/",
            path_is_relative=True,
        )
    )
