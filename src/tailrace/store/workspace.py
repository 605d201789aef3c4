"""The lake as a transaction sees it: as it was at its base snapshot, with its own changes.

What it has looked up or changed is in its `Workspace`: plain state, from which `commit` makes a
snapshot. `Draft` is the two together. Schemas, tables and views are changed in `definitions`, rows
in `row_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

from tailrace.catalog.database import Together
from tailrace.errors import ConflictError, InvalidError, NotFoundError
from tailrace.store import lookup
from tailrace.store.files import NONE, DataFile, Positions, PositionsByFile, union
from tailrace.store.lookup import ViewInfo
from tailrace.store.mirror import Mirror
from tailrace.store.names import fold, split_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import TableInfo
from tailrace.store.write import Written

if TYPE_CHECKING:
    from tailrace.store.table import Table
    from tailrace.store.transaction import Transaction


@dataclass(kw_only=True)
class SchemaWork:
    """A schema that the transaction created, or dropped."""

    id: int  # below 0 if created
    name: str
    path: str
    created: bool
    replaces: int | None = None  # the schema of that name that was dropped before


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Rows that move to other files, with their ids and otherwise as they are."""

    sources: tuple[DataFile, ...]  # as at the base snapshot
    outputs: tuple[DataFile, ...]  # with all rows that the sources had there


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
    rewrites: list[Rewrite] = field(default_factory=list)

    @property
    def files(self) -> list[DataFile]:
        """The new files."""
        return [file for written in self.written for file in written.files]

    @property
    def changes_rows(self) -> bool:
        return bool(self.files or self.removed) and not self.dropped

    @property
    def moves_rows(self) -> bool:
        """Whether rows go to other files, which is no change of theirs."""
        return bool(self.rewrites) and not self.dropped

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

    statements: Together
    snapshot: int  # the one it creates; the newest if it creates none
    # Ids of what it creates, by those that the transaction had for it.
    ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def connection(self) -> sa.Connection:
        """For statements that run at once; `statements` has those that can wait for others."""
        return self.statements.connection

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
            if not created_and_dropped and (work.alters or work.changes_rows or work.moves_rows):
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


class Draft:
    """What is visible to a transaction."""

    base: int  # the snapshot that it reads

    def __init__(
        self, runtime: TenantRuntime, work: Workspace, check: Callable[[], None] | None
    ) -> None:
        """`check` may stop the transaction at any call."""
        self._runtime, self._work, self._check = runtime, work, check
        self._owners: set[int] = set()  # whose tables it may write to
        self._open = True

    @property
    def runtime(self) -> TenantRuntime:
        """What it works with, for consumers that read on their own."""
        return self._runtime

    def table(self, name: str) -> Table:
        """A table, as this transaction sees it."""
        from tailrace.store.table import Table

        schema, plain = split_name(name)
        self._find(schema, plain)
        return Table(self._runtime, schema, plain, transaction=cast("Transaction", self))

    def find_view(self, name: str) -> ViewInfo | None:
        """A view, as this transaction sees it, or None."""
        self._check_open()
        return self._peek_view(*split_name(name))

    def info(self, name: str) -> TableInfo:
        """A table's description, as this transaction sees it."""
        return self._find(*split_name(name)).info

    def own_info(self, name: str) -> TableInfo:
        """The description of a table that this transaction may write to."""
        return self._find_own(*split_name(name)).info

    def scan(self, schema: str, name: str) -> Scan:
        """The rows of a table that this transaction sees."""
        return self._scan(self._find(schema, name))

    def list_tables(self) -> list[tuple[str, str]]:
        """Folded schema and name of every table that this transaction sees."""
        own = {key: not work.dropped for key, work in self._work.tables.items()}
        return self._names(lookup.list_tables, own)

    def list_views(self) -> list[tuple[str, str]]:
        """Folded schema and name of every view that this transaction sees."""

        def committed(connection: sa.Connection, at: int, tenant: str) -> list[tuple[str, str]]:
            return [(v.schema, v.name) for v in lookup.list_views(connection, at, tenant)]

        own = {key: work.info is not None for key, work in self._work.views.items()}
        return self._names(committed, own)

    def _names(
        self,
        list_committed: Callable[[sa.Connection, int, str], list[tuple[str, str]]],
        own: Mapping[tuple[str, str], bool],
    ) -> list[tuple[str, str]]:
        """Those at the base, less those that the workspace says are gone, and those it adds."""
        at, tenant = self.base, self._runtime.tenant
        with self._at_base() as mirror:
            there = mirror.read_at(at, lambda connection: list_committed(connection, at, tenant))
        names = {(fold(schema), fold(name)) for schema, name in there} - own.keys()
        return sorted(names | {key for key, is_there in own.items() if is_there})

    def dropped(self) -> set[int]:
        """The ids of the committed tables that it drops."""
        works = [*self._work.tables.values(), *self._work.replaced]
        return {work.base.id for work in works if work.dropped and work.base is not None}

    def act_for(self, owner: int) -> None:
        """Let this transaction write to the tables of an owner."""
        self._owners.add(owner)

    def acts_for(self, owner: int) -> bool:
        """Whether this transaction may write to the tables of an owner."""
        return owner in self._owners

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidError("this transaction has ended: begin another")
        if self._check is not None:
            self._check()

    @contextmanager
    def _at_base(self) -> Iterator[Mirror]:
        """What the lake was at the base snapshot is read from this, and nothing else."""
        try:
            self._runtime.mirror.check(self.base)
            yield self._runtime.mirror
        except NotFoundError as error:
            # A purge does not know of transactions that have not written anything.
            raise ConflictError(
                "this transaction began so long ago that the lake no longer has its snapshot "
                f"({self.base}): run it again"
            ) from error

    def _find(self, schema: str, name: str) -> TableWork:
        self._check_open()
        work = self._peek(schema, name)
        if work is None and self._peek_view(schema, name) is not None:
            raise InvalidError(f"{schema}.{name} is a view: change the tables that it reads")
        if work is None:
            raise NotFoundError(f"there is no table {schema}.{name}")
        return work

    def _find_own(self, schema: str, name: str) -> TableWork:
        """A table that this transaction may write to."""
        work = self._find(schema, name)
        owner = work.info.derived_by
        if owner is not None and owner not in self._owners:
            raise InvalidError(
                f"{work.info.full_name} is derived by a job, which alone writes to it: "
                "change its sources, or unregister the job to drop it"
            )
        return work

    def _peek(self, schema: str, name: str) -> TableWork | None:
        work = self._work.tables.get((fold(schema), fold(name)))
        if work is not None:
            return None if work.dropped else work
        with self._at_base() as mirror:
            info = mirror.find_table(schema, name, self.base, self._runtime.tenant)
        if info is None:
            return None
        # A database may fold more letters than we do: then this name is another spelling.
        work = self._work.tables.get((fold(info.schema), fold(info.name)))
        if work is not None and work.base is not None and work.base.id == info.id:
            return None if work.dropped else work
        return self._work.add(TableWork(base=info, info=info))

    def _peek_view(self, schema: str, name: str) -> ViewInfo | None:
        work = self._work.views.get((fold(schema), fold(name)))
        if work is not None:
            return work.info
        with self._at_base() as mirror:
            info = mirror.find_view(schema, name, self.base, self._runtime.tenant)
        if info is None:
            return None
        # As in `_peek`: this name may be another spelling of one that is known.
        key = (fold(info.schema), fold(info.name))
        return self._work.views.setdefault(key, ViewWork(base=info, info=info)).info

    def _scan(self, work: TableWork) -> Scan:
        if work.committed is None:
            work.committed = ()
            if work.base is not None:
                with self._at_base() as mirror:
                    work.committed = tuple(mirror.data_files(work.base, self.base))
        every: list[DataFile] = [*work.committed, *work.files]
        live = tuple(
            LiveFile(file=file, removed=work.removed.get(file.key, NONE)) for file in every
        )
        return Scan(table=work.info, at=self.base, files=live)

    def _schema_id(self, name: str) -> int | None:
        work = self._work.schemas.get(fold(name))
        if work is not None:
            return work.id if work.created else None
        row = self._schema_row(name)
        return None if row is None or row.tenant != self._runtime.tenant else int(row.schema_id)

    def _schema_row(self, name: str) -> sa.Row[Any] | None:
        with self._at_base() as mirror:
            return mirror.read_at(
                self.base, lambda connection: lookup.find_schema(connection, name, self.base)
            )
