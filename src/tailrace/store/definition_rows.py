"""The catalog rows of schemas, tables, columns and views, for a commit that defines or drops some.

Always true: everything here happens in the SQL transaction of a commit, under the commit lock. What
others have committed meanwhile under the same name is a ConflictError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.errors import ConflictError
from tailrace.spark_sql import types
from tailrace.store import lookup
from tailrace.store import tables as t
from tailrace.store.lookup import ViewInfo
from tailrace.store.schema import Column, TableInfo
from tailrace.store.workspace import SchemaWork, Workspace

if TYPE_CHECKING:
    from tailrace.store.commit_rows import NewSnapshot


class DefinitionRows:
    """Writes what a commit defines, alters and drops."""

    def __init__(self, new: NewSnapshot, work: Workspace, tenant: str) -> None:
        self._connection, self._work, self._tenant = new.connection, work, tenant
        self._new, self._newest = new, new.newest

    def schema(self, schema: SchemaWork) -> None:
        """Create or drop a schema."""
        row = lookup.find_schema(self._connection, schema.name, self._newest)
        if schema.replaces is not None:
            self._drop_schema(schema.name, schema.replaces, row)
        if schema.created:
            if row is not None and row.schema_id != schema.replaces:
                raise ConflictError(f"another transaction created the schema {schema.name!r}")
            number = self._new.new_catalog_id(schema.id)
            if self._tenant != lookup.DEFAULT_TENANT:
                self._insert(t.own_schema, schema_id=number, tenant=self._tenant)
            self._insert(
                dl.schema,
                schema_id=number,
                schema_uuid=str(uuid4()),
                begin_snapshot=self._new.number,
                schema_name=schema.name,
                path=schema.path,
                path_is_relative=True,
            )
            self._new.note("created_schema", _quoted(schema.name))
        else:
            self._drop_schema(schema.name, schema.id, row)

    def _drop_schema(self, name: str, number: int, row: sa.Row[Any] | None) -> None:
        inside = [
            one
            for kind, number_of in ((dl.table, dl.table.c.table_id), (dl.view, dl.view.c.view_id))
            for one in self._new.run(
                sa.select(number_of).where(
                    kind.c.schema_id == number, lookup.visible(kind, self._newest)
                )
            ).scalars()
        ]
        is_gone = row is None or row.schema_id != number
        if is_gone or not all(self._work.drops(one) for one in inside):
            raise ConflictError(f"another transaction changed the schema {name!r}")
        self._new.end(dl.schema, dl.schema.c.schema_id == number)
        self._new.note("dropped_schema", number)

    def _check_place(self, info: TableInfo | ViewInfo) -> int:
        """Refuse a name that is taken, or in a dropped schema; returns the schema's id."""
        schema_id = self._new.ids.get(info.schema_id, info.schema_id)
        if info.schema_id >= 0:
            schema = lookup.find_schema(self._connection, info.schema, self._newest)
            if schema is None or schema.schema_id != schema_id:
                raise ConflictError(f"another transaction dropped the schema {info.schema!r}")
        table = lookup.find_table(self._connection, info.schema, info.name, self._newest)
        if table is not None and not self._work.drops(table.id):
            raise ConflictError(f"another transaction created the table {info.full_name}")
        view = lookup.find_view(self._connection, info.schema, info.name, self._newest)
        if view is not None and not self._work.drops(view.id):
            raise ConflictError(f"another transaction created the view {info.full_name}")
        return schema_id

    def create_view(self, info: ViewInfo) -> None:
        """Create a view, whose name has to be free by now."""
        schema_id = self._check_place(info)
        self._insert(
            dl.view,
            view_id=self._new.new_catalog_id(info.id),
            view_uuid=info.uuid,
            begin_snapshot=self._new.number,
            schema_id=schema_id,
            view_name=info.name,
            dialect="duckdb",
            sql=info.sql,
            column_aliases=",".join(map(_quoted, info.columns)),
        )
        self._new.note("created_view", f"{_quoted(info.schema)}.{_quoted(info.name)}")

    def drop_view(self, base: ViewInfo) -> None:
        """Drop a view."""
        if self._new.end(dl.view, dl.view.c.view_id == base.id) != 1:
            raise ConflictError(
                f"the view {base.full_name} was replaced or dropped by another transaction: "
                "run this one again"
            )
        self._new.note("dropped_view", base.id)

    def create_table(self, info: TableInfo) -> int:
        """Create a table, whose name has to be free by now; returns its id."""
        schema_id = self._check_place(info)
        table_id = self._new.new_catalog_id(info.id)
        # The rest of the path is in the schema's row.
        own_path = f"{info.path.rstrip('/').rpartition('/')[2]}/"
        self._insert(
            dl.table,
            table_id=table_id,
            table_uuid=info.uuid,
            begin_snapshot=self._new.number,
            schema_id=schema_id,
            table_name=info.name,
            path=own_path,
            path_is_relative=True,
        )
        self._insert(
            t.own_table,
            table_id=table_id,
            primary_key=json.dumps(info.key),
            last_change_snapshot=self._new.number,
            last_alter_snapshot=self._new.number,
        )
        self._insert(
            dl.table_stats, table_id=table_id, record_count=0, next_row_id=0, file_size_bytes=0
        )
        self._add_columns(table_id, info.columns)
        if info.key:
            self._key_tag(table_id, info)
        self._new.note_columns(table_id)
        self._new.note("created_table", f"{_quoted(info.schema)}.{_quoted(info.name)}")
        return table_id

    def _key_tag(self, table_id: int, info: TableInfo) -> None:
        names = json.dumps([c.name for c in info.key_columns], ensure_ascii=False)
        self._insert(
            dl.tag,
            object_id=table_id,
            begin_snapshot=self._new.number,
            key="primary_key",
            value=names,
        )

    def drop_table(self, table_id: int) -> None:
        """Drop a table, with its files."""
        for table in (dl.table, dl.column, dl.data_file, dl.delete_file):
            self._new.end(table, table.c.table_id == table_id)
        self._new.end(dl.tag, dl.tag.c.object_id == table_id)
        self._new.mark_altered(table_id)
        self._new.changes_names = True
        self._new.note("dropped_table", table_id)

    def alter_table(self, old: TableInfo, new: TableInfo) -> None:
        """Replace a table's columns."""
        before = {column.id: column for column in old.columns}
        after = {column.id: column for column in new.columns}
        for number, column in before.items():
            if number not in after:
                self._end_columns(old.id, (number, *column.inner))
        for number, column in after.items():
            if number not in before:
                self._add_columns(old.id, [column])
            elif column != before[number]:
                # Only the column's own row: nested fields stay as they are.
                self._end_columns(old.id, (number,))
                self._new.run(
                    sa.insert(dl.column), list(_column_rows(old.id, self._new.number, column))[:1]
                )
                if column.dimension != before[number].dimension:
                    c = t.vector_column.c
                    self._new.run(
                        sa.delete(t.vector_column).where(
                            c.table_id == old.id, c.column_id == number
                        )
                    )
                    self._dimensions(old.id, [column])
        if [c.name for c in old.key_columns] != [c.name for c in new.key_columns]:
            self._new.end(dl.tag, dl.tag.c.object_id == old.id)
            self._key_tag(old.id, new)
        self._new.mark_altered(old.id)
        self._new.note_columns(old.id)
        self._new.note("altered_table", old.id)

    def _add_columns(self, table_id: int, columns: Sequence[Column]) -> None:
        rows = [row for c in columns for row in _column_rows(table_id, self._new.number, c)]
        self._new.run(sa.insert(dl.column), rows)
        names = [
            {"table_id": table_id, "column_id": c.id, "physical_name": c.physical} for c in columns
        ]
        self._new.run(sa.insert(t.own_column), names)
        self._dimensions(table_id, columns)

    def _dimensions(self, table_id: int, columns: Sequence[Column]) -> None:
        vectors = [c for c in columns if c.dimension is not None]
        self._new.run(
            sa.insert(t.vector_column),
            [{"table_id": table_id, "column_id": c.id, "dimension": c.dimension} for c in vectors],
        )

    def _insert(self, table: sa.Table, **values: Any) -> None:
        self._new.run(sa.insert(table).values(values))

    def _end_columns(self, table_id: int, ids: Sequence[int]) -> None:
        self._new.end(
            dl.column, sa.and_(dl.column.c.table_id == table_id, dl.column.c.column_id.in_(ids))
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column_rows(table_id: int, snapshot: int, column: Column) -> Iterator[dict[str, Any]]:
    """The rows of a column and of what is inside of it."""
    ids = iter((column.id, *column.inner))
    yield from _field_rows(
        table_id, snapshot, pa.field(column.name, column.type, column.nullable), ids, None
    )


def _field_rows(
    table_id: int, snapshot: int, field: pa.Field, ids: Iterator[int], parent: int | None
) -> Iterator[dict[str, Any]]:
    number = next(ids)
    atomic = types.is_atomic(field.type)
    yield {
        "column_id": number,
        "begin_snapshot": snapshot,
        "table_id": table_id,
        "column_order": number,
        "column_name": field.name,
        "column_type": types.lake_type(field.type),
        "default_value": "NULL",
        "nulls_allowed": field.nullable,
        "parent_column": parent,
        "default_value_type": "literal" if atomic else "",
        "default_value_dialect": "duckdb",
    }
    for child in types.children_of(field.type):
        yield from _field_rows(table_id, snapshot, child, ids, number)
