"""The catalog rows of a commit.

Always true: everything here happens in one SQL transaction, under the commit lock, with the
number of the new snapshot known. The rows are those that DuckLake 1.0 prescribes, and ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import in_batches
from tailrace.errors import ConflictError
from tailrace.store import lookup, outcome
from tailrace.store import tables as t
from tailrace.store.column_rows import column_rows
from tailrace.store.file_rows import write_files
from tailrace.store.files import DataFile
from tailrace.store.new_snapshot import NewSnapshot
from tailrace.store.runtime import TenantRuntime
from tailrace.store.scheduled_deletion import schedule
from tailrace.store.schema import Column, TableInfo
from tailrace.store.view import DIALECT, ViewInfo, write_aliases
from tailrace.store.workspace import Commit, SchemaWork, Workspace

if TYPE_CHECKING:
    from tailrace.store.commit import PreparedTable


_END = sa.delete(t.transaction).where(t.transaction.c.txn_id == sa.bindparam("id"))


class Writer:
    """Writes one commit."""

    def __init__(self, new: NewSnapshot, runtime: TenantRuntime, work: Workspace) -> None:
        self._connection, self._runtime, self._work = new.connection, runtime, work
        self._new, self._newest = new, new.newest
        self.moved: dict[int, list[DataFile]] = {}  # files as they are now, by table
        self._new.changes_names = bool(work.schemas) or any(True for _ in work.changed_views())

    def write(self, tables: Sequence[PreparedTable]) -> int:
        """Write everything; returns the snapshot that it is visible from."""
        if not self._work.needs_snapshot:
            self._complete(self._newest)
            return self._newest
        for schema in self._work.schemas.values():
            self._schema(schema)
        # Drops first: a name may be given again in the same commit.
        for view in self._work.changed_views():
            if view.base is not None:
                self._drop_view(view.base)
        for prepared in sorted(tables, key=lambda p: not p.work.dropped):
            self._table(prepared)
        for view in self._work.changed_views():
            if view.info is not None:
                self._create_view(view.info)
        unused = self._unused_objects(tables)
        self._new.write(self._runtime.clock.now())
        self._complete(self._new.number)
        self._schedule(unused)
        # Last: jobs that this very commit drops are no longer there to follow a table.
        self._tell_of_drops(tables)
        return self._new.number

    def _unused_objects(self, tables: Sequence[PreparedTable]) -> dict[str, int]:
        """What it wrote and does not commit, such as files whose rows it deleted again.

        Each gets an id, as if it were a file that the commit ended.
        """
        used = {file.path for prepared in tables for file in prepared.files}
        paths = [path for path in self._work.objects if path not in used]
        return {path: self._new.new_file_id() for path in paths}

    def _schedule(self, unused: dict[str, int]) -> None:
        """Have what is not used deleted, but for what the layers above have named by now."""
        for paths in in_batches(list(unused)):
            for layer in self._runtime.layers:
                for path in layer.objects_in_use(self._connection, paths):
                    unused.pop(path, None)
        files = [(number, path) for path, number in unused.items()]
        schedule(self._connection, files, self._runtime.clock.now())

    def _complete(self, snapshot: int) -> None:
        self._new.later(outcome.ENTER, outcome.entry(self._runtime, self._work, snapshot))
        self._new.flush()
        if self._new.run(_END, {"id": self._work.id}).rowcount != 1:
            raise ConflictError(
                "this transaction was idle for too long and has expired: run it again"
            )
        commit = Commit(connection=self._connection, snapshot=snapshot, ids=self._new.ids)
        for call in self._work.on_commit:
            call(commit)

    def _tell_of_drops(self, tables: Sequence[PreparedTable]) -> None:
        dropped = [p.work.base.id for p in tables if p.work.dropped and p.work.base is not None]
        if dropped:
            for layer in self._runtime.layers:
                layer.dropping(self._runtime, self._connection, dropped)

    # --- schemas, tables and views ----------------------------------------------------------

    def _schema(self, schema: SchemaWork) -> None:
        row = lookup.find_schema(self._connection, schema.name, self._newest)
        if schema.replaces is not None:
            self._drop_schema(schema.name, schema.replaces, row)
        if schema.created:
            if row is not None and row.schema_id != schema.replaces:
                raise ConflictError(f"another transaction created the schema {schema.name!r}")
            number = self._new.new_catalog_id(schema.id)
            if self._runtime.tenant != lookup.DEFAULT_TENANT:
                self._new.run(
                    sa.insert(t.own_schema).values(schema_id=number, tenant=self._runtime.tenant)
                )
            self._new.run(
                sa.insert(dl.schema).values(
                    schema_id=number,
                    schema_uuid=str(uuid4()),
                    begin_snapshot=self._new.number,
                    schema_name=schema.name,
                    path=schema.path,
                    path_is_relative=True,
                )
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

    def _table(self, prepared: PreparedTable) -> None:
        work = prepared.work
        table_id = self._create(work.info) if work.base is None else work.base.id
        if work.dropped:
            self._drop(table_id)
        elif work.base is not None and work.base != work.info:
            self._alter(work.base, work.info)
        if work.changes_rows:
            now = self._runtime.clock.now()
            self.moved[table_id] = write_files(self._new, prepared, table_id, now)

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

    def _create_view(self, info: ViewInfo) -> None:
        schema_id = self._check_place(info)
        self._new.run(
            sa.insert(dl.view).values(
                view_id=self._new.new_catalog_id(info.id),
                view_uuid=info.uuid,
                begin_snapshot=self._new.number,
                schema_id=schema_id,
                view_name=info.name,
                dialect=DIALECT,
                sql=info.sql,
                column_aliases=write_aliases(info.columns),
            )
        )
        self._new.note("created_view", f"{_quoted(info.schema)}.{_quoted(info.name)}")

    def _drop_view(self, base: ViewInfo) -> None:
        if self._new.end(dl.view, dl.view.c.view_id == base.id) != 1:
            raise ConflictError(
                f"the view {base.full_name} was replaced or dropped by another transaction: "
                "run this one again"
            )
        self._new.note("dropped_view", base.id)

    def _create(self, info: TableInfo) -> int:
        schema_id = self._check_place(info)
        table_id = self._new.new_catalog_id(info.id)
        # The rest of the path is in the schema's row.
        own_path = f"{info.path.rstrip('/').rpartition('/')[2]}/"
        self._new.run(
            sa.insert(dl.table).values(
                table_id=table_id,
                table_uuid=info.uuid,
                begin_snapshot=self._new.number,
                schema_id=schema_id,
                table_name=info.name,
                path=own_path,
                path_is_relative=True,
            )
        )
        self._new.run(
            sa.insert(t.own_table).values(
                table_id=table_id,
                primary_key=json.dumps(info.key),
                last_change_snapshot=self._new.number,
                last_alter_snapshot=self._new.number,
            )
        )
        self._new.run(
            sa.insert(dl.table_stats).values(
                table_id=table_id, record_count=0, next_row_id=0, file_size_bytes=0
            )
        )
        self._columns(table_id, info.columns)
        self._physical_names(table_id, info.columns)
        if info.key:
            self._key_tag(table_id, info)
        self._new.note_columns(table_id)
        self._new.note("created_table", f"{_quoted(info.schema)}.{_quoted(info.name)}")
        return table_id

    def _key_tag(self, table_id: int, info: TableInfo) -> None:
        names = json.dumps([c.name for c in info.key_columns], ensure_ascii=False)
        self._new.run(
            sa.insert(dl.tag).values(
                object_id=table_id,
                begin_snapshot=self._new.number,
                key="primary_key",
                value=names,
            )
        )

    def _drop(self, table_id: int) -> None:
        for table in (dl.table, dl.column, dl.data_file, dl.delete_file):
            self._new.end(table, table.c.table_id == table_id)
        self._new.end(dl.tag, dl.tag.c.object_id == table_id)
        self._new.mark_altered(table_id)
        self._new.changes_names = True
        self._new.note("dropped_table", table_id)

    def _alter(self, old: TableInfo, new: TableInfo) -> None:
        before = {column.id: column for column in old.columns}
        after = {column.id: column for column in new.columns}
        for number, column in before.items():
            if number not in after:
                self._end_columns(old.id, (number, *column.inner))
        for number, column in after.items():
            if number not in before:
                self._columns(old.id, [column])
                self._physical_names(old.id, [column])
            elif column != before[number]:
                # Only the column's own row: nested fields stay as they are.
                self._end_columns(old.id, (number,))
                self._new.run(
                    sa.insert(dl.column), list(column_rows(old.id, self._new.number, column))[:1]
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

    def _columns(self, table_id: int, columns: Sequence[Column]) -> None:
        rows = [row for c in columns for row in column_rows(table_id, self._new.number, c)]
        self._new.run(sa.insert(dl.column), rows)

    def _physical_names(self, table_id: int, columns: Sequence[Column]) -> None:
        self._new.run(
            sa.insert(t.own_column),
            [
                {"table_id": table_id, "column_id": c.id, "physical_name": c.physical}
                for c in columns
            ],
        )
        self._dimensions(table_id, columns)

    def _dimensions(self, table_id: int, columns: Sequence[Column]) -> None:
        vectors = [c for c in columns if c.dimension is not None]
        self._new.run(
            sa.insert(t.vector_column),
            [{"table_id": table_id, "column_id": c.id, "dimension": c.dimension} for c in vectors],
        )

    def _end_columns(self, table_id: int, ids: Sequence[int]) -> None:
        self._new.end(
            dl.column, sa.and_(dl.column.c.table_id == table_id, dl.column.c.column_id.in_(ids))
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
