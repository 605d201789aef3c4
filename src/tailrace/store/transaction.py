"""A transaction: a snapshot to read, a workspace to write to, and one commit.

Always true: it reads the lake as it was at its base snapshot, plus its own writes. Objects are
written as it goes; nothing of it is visible to others before `commit`, and nothing after
`rollback`. How the workspace becomes a snapshot is in `commit`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import sqlalchemy as sa

from tailrace.arguments import checked
from tailrace.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from tailrace.fixes import Action, Fix
from tailrace.store import keys as key_search
from tailrace.store import lookup, outcome
from tailrace.store import rows as row_checks
from tailrace.store.commit import commit, commit_callbacks
from tailrace.store.deletes import union
from tailrace.store.files import DataFile, Op
from tailrace.store.heartbeat import Heartbeat
from tailrace.store.keys import Keys, Places
from tailrace.store.parquet import FileWriter
from tailrace.store.predicate import matching
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import (
    OWN_SCHEMA,
    TableInfo,
    check_name,
    check_new_name,
    fold,
    is_hidden,
    new_columns,
    parse_columns,
    quoted_name,
    split_name,
)
from tailrace.store.spark_faults import spark_faults
from tailrace.store.view import ViewInfo, check_definition
from tailrace.store.workspace import Commit, SchemaWork, TableWork, ViewWork, Workspace
from tailrace.store.write import Written, fit_local, select_columns, write_rows

if TYPE_CHECKING:
    from tailrace.store.table import Table


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A transaction that goes on in another process."""

    id: str
    base: int  # the snapshot that it reads


@checked
class Transaction:
    """Begun by `lake.transaction()`; used as a context manager, it commits at the end."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        *,
        check: Callable[[], None] | None = None,
        lent: bool = False,
        begun: Begun | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """`check` may stop it at any call. While it is `lent`, its owner alone ends it.

        With `begun`, it is the rest of a transaction that was handed over. Of those with the same
        `idempotency_key` one commits, once; the others end as if they had been that one.
        """
        self._runtime = runtime
        self._heartbeat = heartbeat
        self._job_ids: set[int] = set()  # jobs whose output it may write
        self._check = check
        self.lent = lent
        self._work = Workspace(
            id=secrets.token_hex(8) if begun is None else begun.id,
            idempotency_key=idempotency_key,
        )
        self._registered = begun is not None
        self._lock = Lock()
        self._open = True
        # The snapshot of the transaction that had the idempotency key before.
        self._done: int | None = None
        if begun is None:
            with runtime.database.read_at_once() as connection:
                self.base = self._begin(connection)
        else:
            self.base = begun.base
            heartbeat.renew(begun.id)
        # The snapshot that the commit created; the base while there is none.
        self.snapshot = self.base

    def _begin(self, connection: sa.Connection) -> int:
        """The snapshot to read."""
        key = self._work.idempotency_key
        if key is not None:
            self._done = outcome.of_key(connection, self._runtime.tenant, key)
        if self._done is None:
            return lookup.newest_snapshot(connection)
        # What that one read: so the same statements do the same again, and are then given up.
        base = max(self._done - 1, 0)
        if not lookup.has_snapshot(connection, base):
            raise InvalidError(
                f"the idempotency key {key!r} was used long ago, for snapshot {self._done}: "
                "what it did is not done again; take another key for something new"
            )
        return base

    @property
    def id(self) -> str:
        """What names this transaction in the catalog: see `lake.outcome`."""
        return self._work.id

    @property
    def is_repeat(self) -> bool:
        """Whether one with its idempotency key has committed before it began.

        Its writes then have no effect, and its commit returns the snapshot of then.
        """
        return self._done is not None

    @property
    def runtime(self) -> Runtime:
        """What it works with, for consumers that read and search by themselves."""
        return self._runtime

    # --- tables -----------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        """A table, as this transaction sees it."""
        from tailrace.store.table import Table

        schema, plain = split_name(name)
        self._find(schema, plain)
        return Table(self._runtime, schema, plain, transaction=self)

    def create_schema(self, name: str) -> None:
        """Create a schema."""
        check_name(name, "schema")
        if fold(name) == OWN_SCHEMA:
            raise InvalidError(f"the schema name {name!r} is Tailrace's own: choose another")
        self._check_open()
        if self._schema_id(name) is not None:
            raise InvalidError(f"the schema {name!r} exists already")
        taken = self._schema_row(name)
        if taken is not None and taken.tenant != self._runtime.tenant:
            raise InvalidError(f"the schema name {name!r} is taken: choose another")
        number = self._work.provisional_id()
        dropped = self._work.schemas.get(fold(name))
        self._work.schemas[fold(name)] = SchemaWork(
            id=number,
            name=name,
            path=_new_path(name),
            created=True,
            replaces=dropped.id if dropped is not None else None,
        )

    def drop_schema(self, name: str) -> None:
        """Drop an empty schema."""
        self._check_open()
        number = self._schema_id(name)
        if number is None:
            raise NotFoundError(f"there is no schema {name!r}")
        if fold(name) == "main":
            raise InvalidError("the schema 'main' cannot be dropped")
        every = [*self.list_views(), *self.list_tables()]
        inside = sorted((plain for schema, plain in every if schema == fold(name)), key=is_hidden)
        if inside:
            raise InvalidError(
                f"the schema {name!r} still has tables or views ({', '.join(inside[:3])}): "
                "drop them first"
            )
        work = self._work.schemas.get(fold(name))
        if work is not None:
            del self._work.schemas[fold(name)]
            if work.replaces is None:
                return
            number = work.replaces
        gone = SchemaWork(id=number, name=name, path="", created=False)
        self._work.schemas[fold(name)] = gone

    def create_table(
        self,
        name: str,
        columns: Any,
        *,
        primary_key: Iterable[str] | str | None = None,
        hidden: bool = False,
    ) -> Table:
        """Create a table; see `Lake.create_table`.

        A `hidden` one is Tailrace's own: its name begins with `_tailrace_`, and those of its
        columns that users don't see may, too.
        """
        self._check_open()
        schema, plain = split_name(name)
        check_new_name(plain, "table", hidden=hidden)
        schema_id = self._place_for(schema, plain)
        key = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
        bare = TableInfo(
            id=self._work.provisional_id(),
            uuid=str(uuid4()),
            schema_id=schema_id,
            schema=schema,
            name=plain,
            path=self._schema_path(schema) + _new_path(plain),
            columns=(),
        )
        made = new_columns(bare, parse_columns(columns), key)
        self._work.add(TableWork(base=None, info=made))
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Drop a table. Older snapshots still have it."""
        self._check_open()
        schema, plain = split_name(name)
        if self._peek_view(schema, plain) is not None:
            raise InvalidError(
                f"{schema}.{plain} is a view, not a table", fix=Fix(Action.DROP_VIEW)
            )
        self._find_own(schema, plain).dropped = True

    def list_tables(self) -> list[tuple[str, str]]:
        """Folded schema and name of every table that this transaction sees."""
        with self._at_base() as connection:
            found = {
                (fold(schema), fold(name))
                for schema, name in lookup.list_tables(connection, self.base, self._runtime.tenant)
            }
        for key, work in self._work.tables.items():
            if work.dropped:
                found.discard(key)
            else:
                found.add(key)
        return sorted(found)

    # --- views ------------------------------------------------------------------------------

    def find_view(self, name: str) -> ViewInfo | None:
        """A view, as this transaction sees it, or None."""
        self._check_open()
        return self._peek_view(*split_name(name))

    def create_view(self, name: str, sql: str, *, columns: Iterable[str] = ()) -> ViewInfo:
        """Create a view that other engines see: the text of a query, in DuckDB's dialect.

        Tables of the view's own schema are best named without it: then the text is right under
        any name that a reader attaches the lake as. `columns` are other names for the query's.
        """
        self._check_open()
        schema, plain = split_name(name)
        check_new_name(plain, "view")
        schema_id = self._place_for(schema, plain)
        made = ViewInfo(
            id=self._work.provisional_id(),
            uuid=str(uuid4()),
            schema_id=schema_id,
            schema=schema,
            name=plain,
            sql=sql,
            columns=check_definition(sql, columns),
        )
        key = (fold(schema), fold(plain))
        self._work.views.setdefault(key, ViewWork(base=None, info=None)).info = made
        return made

    def drop_view(self, name: str) -> ViewInfo:
        """Drop a view, and return what it was. Older snapshots still have it."""
        self._check_open()
        schema, plain = split_name(name)
        gone = self._peek_view(schema, plain)
        if gone is None:
            raise NotFoundError(f"there is no view {schema}.{plain}")
        self._work.views[(fold(gone.schema), fold(gone.name))].info = None
        return gone

    def replace_view(self, name: str, sql: str, *, columns: Iterable[str] = ()) -> ViewInfo:
        """Give a view another text: readers see the one or the other."""
        names = check_definition(sql, columns)  # before the old one is gone
        old = self.drop_view(name)
        return self.create_view(quoted_name(old.schema, old.name), sql, columns=names)

    def list_views(self) -> list[tuple[str, str]]:
        """Folded schema and name of every view that this transaction sees."""
        with self._runtime.database.read() as connection:
            views = lookup.list_views(connection, self.base, self._runtime.tenant)
        found = {(fold(view.schema), fold(view.name)) for view in views}
        for key, work in self._work.views.items():
            if work.info is None:
                found.discard(key)
            else:
                found.add(key)
        return sorted(found)

    def _peek_view(self, schema: str, name: str) -> ViewInfo | None:
        known = self._work.views.get((fold(schema), fold(name)))
        if known is not None:
            return known.info
        with self._runtime.database.read() as connection:
            found = lookup.find_view(connection, schema, name, self.base, self._runtime.tenant)
        if found is None:
            return None
        # As in `_peek`: the name here may be another spelling of one that is known.
        key = (fold(found.schema), fold(found.name))
        return self._work.views.setdefault(key, ViewWork(base=found, info=found)).info

    # --- alterations (called by Table) ------------------------------------------------------

    def alter(self, schema: str, name: str, change: Callable[[TableInfo], TableInfo]) -> None:
        """Replace a table's description by what `change` makes of it."""
        self._check_open()
        work = self._find_own(schema, name)
        work.info = change(work.info)

    # --- rows (called by Table) -------------------------------------------------------------

    def scan(self, schema: str, name: str) -> Scan:
        """The rows of a table that this transaction sees."""
        return self._scan(self._find(schema, name))

    def append(self, schema: str, name: str, rows: object) -> None:
        """Add rows; on a table with a key, keys that exist are an InvalidError."""
        work = self._find_own(schema, name)
        self._write(work, rows, Op.APPEND)

    def upsert(self, schema: str, name: str, rows: object) -> None:
        """Add rows, and replace those with the same key."""
        work = self._find_own(schema, name)
        if not work.info.key:
            raise InvalidError(
                f"{work.info.full_name} has no primary key: upsert needs one; use append"
            )
        self._write(work, rows, Op.UPSERT)

    def _write(self, work: TableWork, rows: object, op: Op) -> None:
        self._register()
        table = work.info
        written = write_rows(self._runtime, table, rows, txn_id=self._work.id, op=op)
        self.own_objects(file.path for file in written.files)
        self._runtime.step("files written")
        self._add(work, written, op)

    def _add(self, work: TableWork, written: Written, op: Op) -> None:
        table = work.info
        if table.key and written.rows:
            scan = self._scan(work)
            found = self._find_keys(
                work, key_search.keys_of_files(self._runtime, table, written), scan
            )
            if found and op is Op.APPEND:
                files = [live.file for live in scan.files]
                shown = key_search.show_keys(self._runtime, table, found, files)
                raise InvalidError(
                    f"{table.full_name}: these keys exist already: {shown}",
                    fix=Fix(Action.UPSERT),
                )
            work.remove(found)
        work.written.append(written)

    def add_written(self, schema: str, name: str, written: Written, op: Op) -> None:
        """Add rows that others have put in files under this transaction's id; see `hand_over`."""
        self._add(self._find_own(schema, name), written, op)

    def own_objects(self, paths: Iterable[str]) -> None:
        """Take objects that have its id in their names for its own: a rollback deletes them."""
        self._work.objects.extend(paths)

    def object_owner(self) -> str:
        """What the names of objects begin with that are written for it outside of tables."""
        self._register()
        return self._work.id

    def delete(self, schema: str, name: str, what: object) -> None:
        """Delete the rows that match a predicate in Spark SQL, or that have one of the keys."""
        work = self._find_own(schema, name)
        scan = self._scan(work)
        if isinstance(what, str):
            found = matching(self._runtime, scan, what, self._stats_reader(work))
        else:
            found = self._find_keys(work, self._given_keys(work.info, what), scan)
        if found:
            self._register()
            work.remove(found)

    def remove(self, name: str, places: Places) -> None:
        """Delete the rows at these places: positions by file key, from a scan of this one.

        For consumers that have found the rows themselves, with `to_df(…, places=True)`.
        """
        work = self._find_own(*split_name(name))
        found = {key: union([positions]) for key, positions in places.items() if len(positions)}
        rows = {live.file.key: live.file.rows for live in self._scan(work).files}
        for key, positions in found.items():
            if key not in rows or positions[0] < 0 or positions[-1] >= rows[key]:
                raise InvalidError(
                    f"{work.info.full_name}: places of file {key} are not of this table as this "
                    "transaction sees it: find them with txn.scan(…)"
                )
        if found:
            self._register()
            work.remove(found)

    def writer(self, name: str) -> FileWriter:
        """What writes a table's files for this transaction, in Spark's workers too.

        For loaders, which read what Spark doesn't. What they write is then given to `add_written`,
        or is theirs to delete; the sweep finds what they leave behind.
        """
        work = self._find_own(*split_name(name))
        self._register()
        return FileWriter(
            storage=self._runtime.storage,
            settings=self._runtime.settings,
            table=work.info,
            txn_id=self._work.id,
            op=Op.APPEND,
        )

    def _given_keys(self, table: TableInfo, given: object) -> Keys:
        """Keys that a user gave for a delete; other columns in them are ignored."""
        if not table.key:
            raise InvalidError(f"{table.full_name} has no primary key: delete by a predicate")
        columns = table.key_columns
        rows = row_checks.only_columns(given, columns)
        if row_checks.is_spark(rows):
            selected = select_columns(rows, table, columns)
            limit = self._runtime.settings.local_rows
            with spark_faults():
                few = selected.limit(limit + 1).toArrow()
            if few.num_rows > limit:
                return key_search.keys_of_frame(table, selected)
            rows = few.rename_columns([column.name for column in columns])
        fitted = fit_local(rows, table, columns)
        return key_search.keys_of_rows(self._runtime, table, fitted)

    def _find_keys(self, work: TableWork, keys: Keys, scan: Scan) -> Places:
        if not scan.files:
            return {}
        return key_search.find_keys(
            self._runtime, keys, scan, self._stats_reader(work)(work.info.key)
        )

    def _stats_reader(self, work: TableWork) -> Callable[[Iterable[int]], Any]:
        def read(column_ids: Iterable[int]) -> Any:
            if work.base is None:
                return {}
            with self._runtime.database.read() as connection:
                return lookup.file_stats(connection, work.base, tuple(column_ids), self.base)

        return read

    # --- jobs -------------------------------------------------------------------------------

    def act_for(self, job_id: int) -> None:
        """Let this transaction write to the tables that are derived by a job."""
        self._job_ids.add(job_id)

    def acts_for(self, job_id: int) -> bool:
        """Whether it may."""
        return job_id in self._job_ids

    def info(self, name: str) -> TableInfo:
        """A table's description, as this transaction sees it."""
        return self._find(*split_name(name)).info

    def own_info(self, name: str) -> TableInfo:
        """The same of a table that it may write to."""
        return self._find_own(*split_name(name)).info

    def written(self) -> list[tuple[TableInfo, int, int]]:
        """The tables whose rows it changes, with rows written or deleted, and bytes written."""
        found = []
        for work in self._work.tables.values():
            if work.changes_rows:
                rows = sum(file.rows for file in work.files)
                rows += sum(len(positions) for positions in work.removed.values())
                found.append((work.info, rows, sum(file.size for file in work.files)))
        return found

    def dropped(self) -> set[int]:
        """The ids of the committed tables that it drops."""
        works = [*self._work.tables.values(), *self._work.replaced]
        return {work.base.id for work in works if work.dropped and work.base is not None}

    # --- end --------------------------------------------------------------------------------

    def hand_over(self, lasting: timedelta) -> Begun:
        """Let other processes go on, before anything is written: they have so long to commit."""
        self._check_lent()
        self._check_open()
        self._heartbeat.register(self._work.id, self.base, lasting=lasting)
        self._open = False
        return Begun(id=self._work.id, base=self.base)

    def on_commit(self, call: Callable[[Commit], None]) -> None:
        """Call a function within the catalog transaction of the commit.

        What it writes commits with the rest or not at all. If it is all there is to commit, no
        snapshot is created, and it gets the newest.
        """
        self._check_open()
        self._work.on_commit.append(call)

    @property
    def last_on_commit(self) -> Callable[[Commit], None] | None:
        """What was given to `on_commit` last."""
        return self._work.on_commit[-1] if self._work.on_commit else None

    def commit(self) -> int:
        """Make everything visible as one snapshot, and return its number."""
        self._check_lent()
        self._check_open()
        if self._done is not None:
            self.rollback()
            self.snapshot = self._done
            return self.snapshot
        try:
            if not self._registered and not self._work.needs_snapshot:
                self.snapshot = commit_callbacks(self._runtime, self._work)
            elif self._work.needs_snapshot or self._work.on_commit or self._work.idempotency_key:
                self._register()
                self.snapshot = commit(self._runtime, self._work, self.base)
                self._heartbeat.forget(self._work.id)
            elif self._registered:
                self._heartbeat.remove(self._work.id)
        except ConflictError:
            self.rollback()
            done = self._first_with_key()
            if done is None:
                raise
            self.snapshot = done
        except BaseException:
            self.rollback()
            raise
        self._open = False
        return self.snapshot

    def _first_with_key(self) -> int | None:
        """The snapshot of a transaction that had the same idempotency key and was first."""
        key = self._work.idempotency_key
        if key is None:
            return None
        with self._runtime.database.read() as connection:
            return outcome.of_key(connection, self._runtime.tenant, key)

    def rollback(self) -> None:
        """Give everything up. Its objects are deleted now or, if that fails, by the sweep."""
        self._check_lent()
        if not self._open:
            return
        self._open = False
        if not self._registered:
            return
        with suppress(UnavailableError):
            # An error can come after the commit, or leave in doubt whether there was one: only
            # who takes the transaction's row out of the catalog knows that there never will be.
            if self._heartbeat.remove(self._work.id):
                self._runtime.step("given up")
                self._runtime.storage.delete(self._work.objects)

    def __enter__(self) -> Transaction:
        self._check_lent()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.rollback()
        elif self._open:
            self.commit()

    # --- inside -----------------------------------------------------------------------------

    def _check_lent(self) -> None:
        if self.lent:
            raise InvalidError(
                "this transaction commits by itself when the consumer returns, together with the "
                "job's watermark: write through it, and leave its end to the iteration"
            )

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidError("this transaction has ended: begin another")
        if self._check is not None:
            self._check()

    def _register(self) -> None:
        self._check_open()
        with self._lock:
            if not self._registered:
                self._heartbeat.register(self._work.id, self.base)
                self._registered = True
                self._runtime.step("registered")

    @contextmanager
    def _at_base(self) -> Iterator[sa.Connection]:
        """For reading the catalog as it was when this transaction began."""
        with self._runtime.database.read_at_once() as connection:
            # One that has written nothing yet is not known to a purge.
            if not lookup.has_snapshot(connection, self.base):
                raise ConflictError(
                    "this transaction began so long ago that the lake no longer has its snapshot "
                    f"({self.base}): run it again"
                )
            yield connection

    def _find(self, schema: str, name: str) -> TableWork:
        self._check_open()
        found = self._peek(schema, name)
        if found is None and self._peek_view(schema, name) is not None:
            raise InvalidError(f"{schema}.{name} is a view: change the tables that it reads")
        if found is None:
            raise NotFoundError(f"there is no table {schema}.{name}")
        return found

    def _find_own(self, schema: str, name: str) -> TableWork:
        """A table that this transaction may write to."""
        work = self._find(schema, name)
        owner = work.info.derived_by
        if owner is not None and owner not in self._job_ids:
            raise InvalidError(
                f"{work.info.full_name} is derived by a job, which alone writes to it: "
                "change its sources, or unregister the job to drop it"
            )
        return work

    def _peek(self, schema: str, name: str) -> TableWork | None:
        known = self._work.tables.get((fold(schema), fold(name)))
        if known is not None:
            return None if known.dropped else known
        with self._at_base() as connection:
            info = lookup.find_table(connection, schema, name, self.base, self._runtime.tenant)
        if info is None:
            return None
        # A database may compare more letters than we do: then the name here is another spelling.
        known = self._work.tables.get((fold(info.schema), fold(info.name)))
        if known is not None and known.base is not None and known.base.id == info.id:
            return None if known.dropped else known
        return self._work.add(TableWork(base=info, info=info))

    def _scan(self, work: TableWork) -> Scan:
        if work.committed is None:
            work.committed = ()
            if work.base is not None:
                with self._at_base() as connection:
                    work.committed = tuple(lookup.data_files(connection, work.base, self.base))
        every: list[DataFile] = [*work.committed, *work.files]
        nothing = union([])
        live = tuple(
            LiveFile(file=file, removed=work.removed.get(file.key, nothing)) for file in every
        )
        return Scan(table=work.info, at=self.base, files=live)

    def _place_for(self, schema: str, name: str) -> int:
        """The id of the schema in which a table or view is about to be created."""
        schema_id = self._schema_id(schema)
        if schema_id is None:
            taken = self._schema_row(schema)
            if taken is not None and taken.tenant != self._runtime.tenant:
                raise NotFoundError(
                    f"the tenant {self._runtime.tenant!r} has no schema {schema!r}, and that name "
                    "is taken",
                    fix=Fix(Action.CREATE_ANOTHER_SCHEMA),
                )
            raise NotFoundError(
                f"there is no schema {schema!r}", fix=Fix(Action.CREATE_SCHEMA, schema)
            )
        if self._peek(schema, name) is not None:
            raise InvalidError(f"the table {schema}.{name} exists already")
        if self._peek_view(schema, name) is not None:
            raise InvalidError(f"the view {schema}.{name} exists already")
        return schema_id

    def _schema_id(self, name: str) -> int | None:
        known = self._work.schemas.get(fold(name))
        if known is not None:
            return known.id if known.created else None
        row = self._schema_row(name)
        return None if row is None or row.tenant != self._runtime.tenant else int(row.schema_id)

    def _schema_path(self, name: str) -> str:
        known = self._work.schemas.get(fold(name))
        if known is not None:
            return known.path
        row = self._schema_row(name)
        assert row is not None
        return str(row.path)

    def _schema_row(self, name: str) -> sa.Row[Any] | None:
        with self._at_base() as connection:
            return lookup.find_schema(connection, name, self.base)


def _new_path(name: str) -> str:
    """A directory for a new schema or table: readable where its name allows, and always new."""
    readable = name if re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) else ""
    return f"{readable}-{secrets.token_hex(4)}/".lstrip("-")
