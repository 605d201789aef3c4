"""The catalog rows of a commit: the new snapshot, what it changes, and that it happened.

Always true: everything here happens in one SQL transaction, under the commit lock, with the
number of the new snapshot known, so that the numbers that follow the newest snapshot's are its own.
The rows are those that DuckLake 1.0 prescribes, and ours. Those of schemas, tables and views are in
`definition_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import Together, in_batches
from tailrace.catalog.part import Int
from tailrace.errors import ConflictError
from tailrace.store import tables as t
from tailrace.store.definition_rows import DefinitionRows
from tailrace.store.files import DataFile, DeleteFile, Op
from tailrace.store.lookup import NEWEST
from tailrace.store.runtime import TenantRuntime
from tailrace.store.sweep import SCHEDULE, schedule, scheduled
from tailrace.store.workspace import Commit, Workspace

if TYPE_CHECKING:
    from tailrace.store.commit import PreparedTable
    from tailrace.store.deletes import WrittenDeletes


# Built once: building a statement costs more than running it.
_NEWEST = sa.select(dl.snapshot).where(dl.snapshot.c.snapshot_id == NEWEST)
_SNAPSHOT, _CHANGES = sa.insert(dl.snapshot), sa.insert(dl.snapshot_changes)
_VERSIONS = sa.insert(dl.schema_versions)
_TABLE_ID = sa.bindparam("number", type_=Int)
_MARK_CHANGED, _MARK_ALTERED, _MARK_REWRITTEN = (
    sa.update(t.own_table)
    .where(t.own_table.c.table_id == _TABLE_ID)
    .values({column: sa.bindparam("snapshot", type_=Int)})
    for column in (
        t.own_table.c.last_change_snapshot,
        t.own_table.c.last_alter_snapshot,
        t.own_table.c.last_rewrite_snapshot,
    )
)
_OWN_FILES = sa.insert(t.own_file)
_STATS, _DELETE_FILES = sa.insert(dl.file_column_stats), sa.insert(dl.delete_file)
_REPLACE = sa.update(dl.delete_file).where(
    dl.delete_file.c.delete_file_id == sa.bindparam("replaced", type_=Int)
)
_END = {
    table: sa.update(table)
    .where(
        table.c.data_file_id.in_(sa.bindparam("ids", expanding=True)),
        table.c.end_snapshot.is_(None),
    )
    .values(end_snapshot=sa.bindparam("snapshot", type_=Int))
    for table in (dl.data_file, dl.delete_file)
}
_TOTALS = dl.table_stats.c
_THIS = _TOTALS.table_id == sa.bindparam("number", type_=Int)
_DATA_FILES = sa.insert(dl.data_file).values(
    row_id_start=sa.select(_TOTALS.next_row_id).where(_THIS).scalar_subquery()
    + sa.bindparam("rows_before", type_=Int)
)
# Rows that move to a file keep their ids, which are in the file.
_MOVED_TO = sa.insert(dl.data_file)
_MOVED_FROM = (
    sa.update(t.own_file)
    .where(t.own_file.c.data_file_id.in_(sa.bindparam("ids", expanding=True)))
    .values(rewritten=sa.bindparam("snapshot", type_=Int))
)
_ROWS, _BYTES = sa.bindparam("rows", type_=Int), sa.bindparam("bytes", type_=Int)
_ADD_TO_TOTALS = (
    sa.update(dl.table_stats)
    .where(_THIS)
    .values(
        next_row_id=_TOTALS.next_row_id + _ROWS,
        record_count=_TOTALS.record_count + _ROWS,
        file_size_bytes=_TOTALS.file_size_bytes + _BYTES,
    )
)
_MOVE_TOTALS = (
    sa.update(dl.table_stats)
    .where(_THIS)
    .values(
        record_count=_TOTALS.record_count + _ROWS,
        file_size_bytes=_TOTALS.file_size_bytes + _BYTES,
    )
)
_END_TRANSACTION = sa.delete(t.transaction).where(t.transaction.c.txn_id == sa.bindparam("id"))
_ENTER = sa.insert(t.commit)


class NewSnapshot:
    """One snapshot in the making, and how rows are written that begin or end with it."""

    def __init__(self, connection: sa.Connection) -> None:
        row = connection.execute(_NEWEST).one()
        self.connection, self.statements = connection, Together(connection)
        self.newest = int(row.snapshot_id)
        self.number = self.newest + 1
        self.ids: dict[int, int] = {}  # what schemas, tables and views get, by provisional ids
        self._schema_version = int(row.schema_version)
        self._next_catalog_id = int(row.next_catalog_id)
        self._next_file_id = int(row.next_file_id)
        # Whether schemas, tables or views come or go: readers keep what they know of them until the
        # schema version changes.
        self.changes_names = False
        self._changes: list[str] = []
        self._altered: list[int] = []

    def new_catalog_id(self, provisional: int) -> int:
        """The id of a schema, table or view."""
        number = self.ids[provisional] = self._next_catalog_id
        self._next_catalog_id += 1
        return number

    def new_file_id(self) -> int:
        """The id of a data or delete file."""
        self._next_file_id += 1
        return self._next_file_id - 1

    def note(self, what: str, which: int | str) -> None:
        """Say what it changes, as DuckLake does."""
        self._changes.append(f"{what}:{which}")

    def note_columns(self, table_id: int) -> None:
        """Say that a table has other columns than before."""
        self._altered.append(table_id)

    def run(
        self, statement: Any, rows: Sequence[dict[str, Any]] | dict[str, Any] | None = None
    ) -> Any:
        """Execute a statement; with rows, only if there are any."""
        if rows is None:
            return self.connection.execute(statement)
        return self.connection.execute(statement, rows) if rows else None

    def end(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        """End rows that have not ended; returns how many."""
        ended = self.run(
            sa.update(table)
            .where(condition, table.c.end_snapshot.is_(None))
            .values(end_snapshot=self.number)
        )
        return int(ended.rowcount)

    def mark_changed(self, table_id: int) -> None:
        """Note that a table's rows change."""
        self.statements.later(_MARK_CHANGED, {"number": table_id, "snapshot": self.number})

    def mark_rewritten(self, table_id: int) -> None:
        """Note that rows of a table move to other files."""
        self.statements.later(_MARK_REWRITTEN, {"number": table_id, "snapshot": self.number})

    def mark_altered(self, table_id: int) -> None:
        """Note that a table's columns change, or that it is dropped."""
        self.statements.later(_MARK_ALTERED, {"number": table_id, "snapshot": self.number})

    def write(self, now: datetime) -> None:
        """Write its own rows, after all others."""
        if self._altered or self.changes_names:
            self._schema_version += 1
        self.statements.later(
            _VERSIONS,
            [
                {
                    "begin_snapshot": self.number,
                    "schema_version": self._schema_version,
                    "table_id": table_id,
                }
                for table_id in self._altered
            ],
        )
        self.statements.later(
            _SNAPSHOT,
            {
                "snapshot_id": self.number,
                "snapshot_time": now,
                "schema_version": self._schema_version,
                "next_catalog_id": self._next_catalog_id,
                "next_file_id": self._next_file_id,
            },
        )
        changes = {"snapshot_id": self.number, "changes_made": ",".join(self._changes)}
        self.statements.later(_CHANGES, changes)


class Writer:
    """Writes one commit."""

    def __init__(self, new: NewSnapshot, runtime: TenantRuntime, work: Workspace) -> None:
        self._connection, self._runtime, self._work = new.connection, runtime, work
        self._new, self._now = new, runtime.clock.now()
        self.moved: dict[int, list[DataFile]] = {}  # files as they are now, by table
        self._new.changes_names = bool(work.schemas) or any(True for _ in work.changed_views())

    def write(self, tables: Sequence[PreparedTable]) -> int:
        """Write everything; returns the snapshot that it is visible from."""
        if not self._work.needs_snapshot:
            self._complete(self._new.newest)
            return self._new.newest
        for schema in self._work.schemas.values():
            self._definitions.schema(schema)
        # Drops first: a name may be given again in the same commit.
        for view in self._work.changed_views():
            if view.base is not None:
                self._definitions.drop_view(view.base)
        for prepared in sorted(tables, key=lambda p: not p.work.dropped):
            self._table(prepared)
        for view in self._work.changed_views():
            if view.info is not None:
                self._definitions.create_view(view.info)
        unused = self._unused_objects(tables)
        self._new.write(self._now)
        self._complete(self._new.number)
        if unused:
            self._schedule(unused)
        # Last: jobs that this very commit drops are no longer there to follow a table.
        self._tell_of_drops(tables)
        return self._new.number

    @cached_property
    def _definitions(self) -> DefinitionRows:
        return DefinitionRows(self._new, self._work, self._runtime.tenant)

    def _table(self, prepared: PreparedTable) -> None:
        work, base = prepared.work, prepared.work.base
        table_id = self._definitions.create_table(work.info) if base is None else base.id
        if work.dropped:
            self._definitions.drop_table(table_id)
        elif base is not None and base != work.info:
            self._definitions.alter_table(base, work.info)
        if work.changes_rows or work.moves_rows:
            self.moved[table_id] = _write_files(self._new, prepared, table_id, self._now)

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
        schedule(self._connection, [(i, path) for path, i in unused.items()], self._now)

    def _complete(self, snapshot: int) -> None:
        statements = self._new.statements
        enter_outcome(statements, self._runtime, self._work, snapshot)
        expired = "this transaction was idle for too long and has expired: run it again"
        statements.later(_END_TRANSACTION, {"id": self._work.id}, ConflictError(expired))
        commit = Commit(statements=statements, snapshot=snapshot, ids=self._new.ids)
        for call in self._work.on_commit:
            call(commit)
        statements.flush()

    def _tell_of_drops(self, tables: Sequence[PreparedTable]) -> None:
        dropped = [p.work.base.id for p in tables if p.work.dropped and p.work.base is not None]
        if dropped:
            for layer in self._runtime.layers:
                layer.dropping(self._runtime, self._connection, dropped)


def enter_outcome(
    statements: Together,
    runtime: TenantRuntime,
    work: Workspace,
    snapshot: int,
) -> None:
    """Note that a transaction has committed; see `commit.outcome`."""
    entry = {
        "txn_id": work.id,
        "tenant": runtime.tenant,
        "snapshot": snapshot,
        "idempotency_key": work.idempotency_key,
        "committed_at": runtime.clock.now(),
    }
    statements.later(_ENTER, entry)


def _write_files(
    new: NewSnapshot, prepared: PreparedTable, table_id: int, now: datetime
) -> list[DataFile]:
    """Write the rows of a table's new files, and end those of which no row is left there.

    Returns the files that it moved, as they are in the catalog from now on.
    """
    table_path = prepared.work.info.path
    ids = {file.key: new.new_file_id() for file in prepared.files}
    _insert_files(new, prepared, ids, table_id)
    deletes = _delete_files(new, now, prepared.deletes, ids, table_id, table_path)
    over = [*prepared.ended, *prepared.moved]
    with_deletes = [file for file in over if file.deletes is not None]
    for table, ended in ((dl.data_file, over), (dl.delete_file, with_deletes)):
        for some in in_batches(file.id for file in ended):
            new.statements.later(_END[table], {"ids": some, "snapshot": new.number})
    for some in in_batches(file.id for file in prepared.moved):
        new.statements.later(_MOVED_FROM, {"ids": some, "snapshot": new.number})
    if prepared.moved:
        new.note("rewrite_delete", table_id)  # DuckLake's word for it
        new.mark_rewritten(table_id)
    if prepared.work.changes_rows:
        if prepared.files:
            new.note("inserted_into_table", table_id)
        if prepared.deletes or prepared.ended:
            new.note("deleted_from_table", table_id)
        new.mark_changed(table_id)
    begun = [replace(file, id=ids[file.key], begin=new.number) for file in prepared.files]
    lost_rows = [file for file, _ in prepared.deletes if file.key not in ids]
    return [
        *(replace(file, deletes=deletes.get(file.key)) for file in begun),
        *(replace(file, deletes=deletes[file.key]) for file in lost_rows),
        *(replace(file, end=new.number) for file in prepared.ended),
        *(replace(file, end=new.number, rewritten=True) for file in prepared.moved),
    ]


def _insert_files(
    new: NewSnapshot, prepared: PreparedTable, ids: dict[int, int], table_id: int
) -> None:
    rows_before = 0
    stats_rows, own_rows = [], []
    inserted: list[dict[str, Any]] = []
    moved: list[dict[str, Any]] = []
    for file in prepared.files:
        number = ids[file.key]
        numbered = {"number": table_id, "rows_before": rows_before}
        is_moved = file.op is Op.COMPACTION
        (moved if is_moved else inserted).append(
            {
                "data_file_id": number,
                "table_id": table_id,
                "begin_snapshot": new.number,
                "path": file.path.removeprefix(prepared.work.info.path),
                "path_is_relative": True,
                "file_format": "parquet",
                "record_count": file.rows,
                "file_size_bytes": file.size,
                "footer_size": file.footer,
                **({} if is_moved else numbered),
            }
        )
        rows_before += 0 if is_moved else file.rows
        own_rows.append({"data_file_id": number, "file_key": file.key, "op": str(file.op)})
        stats_rows += [
            {
                "data_file_id": number,
                "table_id": table_id,
                "column_id": s.column_id,
                "column_size_bytes": s.size,
                "value_count": s.values,
                "null_count": s.nulls,
                "min_value": s.min,
                "max_value": s.max,
                "contains_nan": s.has_nan,
            }
            for s in file.stats
        ]
    new.statements.later(_DATA_FILES, inserted)
    new.statements.later(_MOVED_TO, moved)
    rows = sum(file.rows for file in prepared.files) - sum(file.rows for file in prepared.moved)
    size = sum(file.size for file in prepared.files) - sum(file.size for file in prepared.moved)
    if inserted:
        new.statements.later(_ADD_TO_TOTALS, {"number": table_id, "rows": rows, "bytes": size})
    elif prepared.moved:
        new.statements.later(_MOVE_TOTALS, {"number": table_id, "rows": rows, "bytes": size})
    new.statements.later(_STATS, stats_rows)
    new.statements.later(_OWN_FILES, own_rows)


def _delete_files(
    new: NewSnapshot,
    now: datetime,
    written: Sequence[tuple[DataFile, WrittenDeletes]],
    ids: dict[int, int],
    table_id: int,
    table_path: str,
) -> dict[int, DeleteFile]:
    """Returns the new delete files, by the keys of the files that they are of."""
    if not written:
        return {}
    # A new file says all that the old one did, so that its row takes the place of the old one's,
    # whose object stays for a while: someone may be reading it.
    replaced = [file.deletes for file, _ in written if file.deletes is not None]
    new.statements.later(
        SCHEDULE, scheduled([(deletes.id, deletes.path) for deletes in replaced], now)
    )
    made, first, again = {}, [], []
    for file, deletes in written:
        number = new.new_file_id()
        begin = new.number if deletes.begin is None else deletes.begin
        row = {
            "delete_file_id": number,
            "table_id": table_id,
            "begin_snapshot": begin,
            "data_file_id": ids.get(file.key, file.id),
            "path": deletes.path.removeprefix(table_path),
            "path_is_relative": True,
            "format": "parquet",
            "delete_count": deletes.count,
            "file_size_bytes": deletes.size,
            "footer_size": deletes.footer,
            "partial_max": deletes.last,
        }
        if file.deletes is None:
            first.append(row)
        else:
            again.append({"replaced": file.deletes.id, **row})
        made[file.key] = DeleteFile(
            id=number,
            path=deletes.path,
            data_path=file.path,
            begin=begin,
            last=begin if deletes.last is None else deletes.last,
            count=deletes.count,
            size=deletes.size,
        )
    new.statements.later(_DELETE_FILES, first)
    new.statements.later(_REPLACE, again)
    return made
