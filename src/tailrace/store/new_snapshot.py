"""The snapshot that a commit is about to create: its number, the ids that it gives, its own rows.

Always true: it is used in one SQL transaction, under the commit lock, so that the numbers that
follow the newest snapshot's are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.columns import Int
from tailrace.catalog.database import one_round_trip
from tailrace.store import tables as t
from tailrace.store.lookup import NEWEST

# Built once: building a statement costs more than running it.
_NEWEST = sa.select(dl.snapshot).where(dl.snapshot.c.snapshot_id == NEWEST)
_SNAPSHOT, _CHANGES = sa.insert(dl.snapshot), sa.insert(dl.snapshot_changes)
_VERSIONS = sa.insert(dl.schema_versions)
_TABLE_ID = sa.bindparam("number", type_=Int)
_MARK_CHANGED, _MARK_ALTERED = (
    sa.update(t.own_table)
    .where(t.own_table.c.table_id == _TABLE_ID)
    .values({column: sa.bindparam("snapshot", type_=Int)})
    for column in (t.own_table.c.last_change_snapshot, t.own_table.c.last_alter_snapshot)
)


class NewSnapshot:
    """One snapshot in the making, and how rows are written that begin or end with it."""

    def __init__(self, connection: sa.Connection) -> None:
        row = connection.execute(_NEWEST).one()
        self.connection = connection
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
        self._later: list[tuple[Any, Sequence[dict[str, Any]] | dict[str, Any]]] = []

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

    def later(self, statement: Any, rows: Sequence[dict[str, Any]] | dict[str, Any]) -> None:
        """Have a statement executed with others, once nobody needs their results; see `flush`."""
        if rows:
            self._later.append((statement, rows))

    def flush(self) -> None:
        """Execute what was left for later."""
        with one_round_trip(self.connection):
            for statement, rows in self._later:
                self.connection.execute(statement, rows)
        self._later.clear()

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
        self.later(_MARK_CHANGED, {"number": table_id, "snapshot": self.number})

    def mark_altered(self, table_id: int) -> None:
        """Note that a table's columns change, or that it is dropped."""
        self.later(_MARK_ALTERED, {"number": table_id, "snapshot": self.number})

    def write(self, now: datetime) -> None:
        """Write its own rows, after all others."""
        if self._altered or self.changes_names:
            self._schema_version += 1
        self.later(
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
        self.later(
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
        self.later(_CHANGES, changes)
