"""What a transaction has done so far: plain state, from which `commit` makes a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from tailrace.store.files import DataFile
from tailrace.store.names import fold
from tailrace.store.positions import Positions, PositionsByFile, union
from tailrace.store.schema import TableInfo
from tailrace.store.view import ViewInfo
from tailrace.store.write import Written


@dataclass(kw_only=True)
class SchemaWork:
    """A schema that the transaction created, or dropped."""

    id: int  # below 0 if created
    name: str
    path: str
    created: bool
    replaces: int | None = None  # the schema of that name that was dropped before


@dataclass(kw_only=True)
class TableWork:
    """A table that the transaction has looked up or changed."""

    base: TableInfo | None  # as it was at the base snapshot; None: created here
    info: TableInfo  # as the transaction sees it
    dropped: bool = False
    committed: tuple[DataFile, ...] | None = None  # its files at the base; None: not looked at
    written: list[Written] = field(default_factory=list)  # new files
    # Deleted positions by file key, of committed and of new files.
    removed: dict[int, Positions] = field(default_factory=dict)

    @property
    def files(self) -> list[DataFile]:
        """The new files."""
        return [file for written in self.written for file in written.files]

    @property
    def changes_rows(self) -> bool:
        return bool(self.files or self.removed) and not self.dropped

    @property
    def alters(self) -> bool:
        return self.base is None or self.dropped or self.base != self.info

    def remove(self, places: PositionsByFile) -> None:
        """Mark rows as deleted."""
        for file_key, positions in places.items():
            self.removed[file_key] = union([self.removed.get(file_key, positions), positions])


@dataclass(kw_only=True)
class ViewWork:
    """A view that the transaction has looked up, created or dropped."""

    base: ViewInfo | None  # as it was at the base snapshot; None: there was none
    info: ViewInfo | None  # as the transaction sees it; None: dropped


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit under way, for what runs within it: its last statements are still to come."""

    connection: sa.Connection
    snapshot: int  # the one it creates; the newest if it creates none
    # Ids of what it creates, by those that the transaction had for it.
    ids: Mapping[int, int] = field(default_factory=dict)

    def table_id(self, table: TableInfo) -> int:
        """The id by which a table is known from this commit on."""
        return self.ids.get(table.id, table.id)


@dataclass(kw_only=True)
class Workspace:
    """Everything that a transaction is going to commit."""

    id: str
    idempotency_key: str | None = None  # one transaction with this key commits, no second
    tables: dict[tuple[str, str], TableWork] = field(default_factory=dict)  # by folded names
    # Committed tables that were dropped, and whose name was then given to another.
    replaced: list[TableWork] = field(default_factory=list)
    views: dict[tuple[str, str], ViewWork] = field(default_factory=dict)  # by folded names
    schemas: dict[str, SchemaWork] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)  # every data file written, used or not
    on_commit: list[Callable[[Commit], None]] = field(default_factory=list)
    _last_id: int = 0

    def provisional_id(self) -> int:
        """An id for something that gets its final one from the commit."""
        self._last_id -= 1
        return self._last_id

    def add(self, work: TableWork) -> TableWork:
        """Enter a table, found or created."""
        key = (fold(work.info.schema), fold(work.info.name))
        before = self.tables.get(key)
        if before is not None and before.base is not None:
            self.replaced.append(before)
        self.tables[key] = work
        return work

    def changed_tables(self) -> Iterator[TableWork]:
        """The tables that the commit must write something about."""
        for work in (*self.replaced, *self.tables.values()):
            created_and_dropped = work.base is None and work.dropped
            if not created_and_dropped and (work.alters or work.changes_rows):
                yield work

    def changed_views(self) -> Iterator[ViewWork]:
        """The views that the commit must write something about."""
        return (work for work in self.views.values() if work.base != work.info)

    def drops(self, number: int) -> bool:
        """Whether the commit ends a table or view; both take ids from one sequence."""
        return any(
            work.dropped and work.base is not None and work.base.id == number
            for work in self.changed_tables()
        ) or any(work.base is not None and work.base.id == number for work in self.changed_views())

    @property
    def needs_snapshot(self) -> bool:
        return (
            bool(self.schemas)
            or any(True for _ in self.changed_tables())
            or any(True for _ in self.changed_views())
        )
