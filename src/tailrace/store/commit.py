"""How a workspace becomes a snapshot: first committer wins, and the lock is held briefly.

1. Outside any lock, compare with what was committed from the base to the newest snapshot V
   (`_Preparation`): a row we delete that is gone, a key we insert that is there, a table that was
   altered or dropped is a ConflictError. Delete files are written on top of the others' deletes.
   At first V is the base, if nothing newer is known: then there is nothing to compare.
2. Under the commit lock, see that nothing relevant followed V; if it did, let go and repeat,
   and in the last round do 1 under the lock.
3. Write the catalog's rows (`commit_rows`) and commit.

Always true: a transaction that commits enters its id, in the same catalog transaction, and under
the commit lock. So whoever holds the lock and finds no entry knows that a COMMIT which was sent
before did not happen (`outcome`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import sqlalchemy as sa

from tailrace.catalog.database import CommitLostError, Together
from tailrace.errors import CommitUnknownError, ConflictError, UnavailableError
from tailrace.store import lookup, table_files
from tailrace.store import tables as t
from tailrace.store.commit_rows import NewSnapshot, Writer, enter_outcome
from tailrace.store.deletes import NOTHING, Deleted, WrittenDeletes, write_deletes
from tailrace.store.files import NONE, DataFile, Op, Positions, union
from tailrace.store.find_rows import find_keys, keys_of_files, show_keys
from tailrace.store.moves import Moves, late_deletes, merged
from tailrace.store.runtime import TenantRuntime
from tailrace.store.scan import Scan
from tailrace.store.schema import TableInfo
from tailrace.store.workspace import Commit, Rewrite, TableWork, Workspace

_C = t.commit.c
_BY_ID = sa.select(_C.snapshot).where(
    _C.txn_id == sa.bindparam("id"), _C.tenant == sa.bindparam("owner")
)
_BY_KEY = sa.select(_C.snapshot).where(
    _C.idempotency_key == sa.bindparam("key"), _C.tenant == sa.bindparam("owner")
)


@dataclass(kw_only=True)
class PreparedTable:
    """What a commit will write about one table's files."""

    work: TableWork
    files: list[DataFile] = field(default_factory=list)  # new ones that have live rows
    # New delete files, by the file that they are of; that file may be one of the new ones.
    deletes: list[tuple[DataFile, WrittenDeletes]] = field(default_factory=list)
    ended: list[DataFile] = field(default_factory=list)  # files that lost their last row
    moved: list[DataFile] = field(default_factory=list)  # files whose rows go to new ones


@dataclass(kw_only=True)
class Prepared:
    """A commit that is right if the newest snapshot is still `newest`."""

    newest: int
    tables: list[PreparedTable] = field(default_factory=list)

    @property
    def names_its_snapshot(self) -> bool:
        """Whether a delete file has the number of the coming snapshot written in it."""
        return any(
            written.last is not None for table in self.tables for _, written in table.deletes
        )

    def delete_paths(self) -> list[str]:
        return [written.path for table in self.tables for _, written in table.deletes]


def commit(runtime: TenantRuntime, work: Workspace, base: int) -> int:
    """Commit a workspace; returns the new snapshot, or the newest if none was needed."""
    try:
        return _commit(runtime, work, base)
    except CommitLostError as lost:
        return _settle(runtime, work.id, lost)


def _commit(runtime: TenantRuntime, work: Workspace, base: int) -> int:
    # Usually nothing has followed the base, and then nobody has to be asked.
    first = base if runtime.mirror.last == base else None
    for last in [False] * runtime.settings.commit_rounds + [True]:
        prepared = None
        if not last:
            with runtime.database.read() as connection:
                prepared = _Preparation(runtime, connection, work, base, first).run()
            first = None
            runtime.step("prepared")
        with runtime.database.lock() as connection:
            runtime.step("locked")
            _check_key(connection, runtime, work)
            if prepared is None:
                prepared = _Preparation(runtime, connection, work, base).run()
            new = NewSnapshot(connection)
            if _still_right(connection, prepared, new.newest):
                writer = Writer(new, runtime, work)
                snapshot = writer.write(prepared.tables)
                runtime.step("rows written")
            else:
                snapshot = -1
        if snapshot >= 0:
            runtime.step("committed")
            if prepared.newest == new.newest:
                runtime.mirror.learn(snapshot, writer.moved)
            return snapshot
        runtime.storage.delete(prepared.delete_paths())
    raise AssertionError("the last round is under the lock, and always right")


def commit_callbacks(runtime: TenantRuntime, work: Workspace) -> int:
    """Commit a workspace that touched no table and has no object: returns the newest snapshot."""
    if not work.on_commit and work.idempotency_key is None:
        with runtime.database.read() as connection:
            return lookup.newest_snapshot(connection)
    try:
        with runtime.database.lock() as connection:
            runtime.step("locked")
            _check_key(connection, runtime, work)
            newest = lookup.newest_snapshot(connection)
            statements = Together(connection)
            for call in work.on_commit:
                call(Commit(statements=statements, snapshot=newest))
            enter_outcome(statements, runtime, work, newest)
            statements.flush()
            runtime.step("rows written")
    except CommitLostError as lost:
        return _settle(runtime, work.id, lost)
    runtime.step("committed")
    return newest


def outcome(runtime: TenantRuntime, txn_id: str) -> int | None:
    """The snapshot that a transaction committed as; None if no COMMIT that was sent took effect.

    Under the lock: who sent the COMMIT held it, and so has ended.
    """
    with runtime.database.lock() as connection:
        return _snapshot(connection, _BY_ID, {"id": txn_id, "owner": runtime.tenant})


def snapshot_of_key(connection: sa.Connection, tenant: str, key: str) -> int | None:
    """The snapshot of the transaction that used an idempotency key; None if none has committed."""
    return _snapshot(connection, _BY_KEY, {"key": key, "owner": tenant})


def _snapshot(
    connection: sa.Connection, query: sa.Select[int], values: dict[str, str]
) -> int | None:
    snapshot = connection.execute(query, values).scalar_one_or_none()
    return None if snapshot is None else int(snapshot)


def _settle(runtime: TenantRuntime, txn_id: str, lost: CommitLostError) -> int:
    """Find out what became of a commit whose answer was lost.

    Returns the snapshot if it happened. If it did not, the loss is raised: nothing was done, and
    it can be tried again. CommitUnknownError if the catalog stays away.
    """
    deadline = time.monotonic() + runtime.settings.lock_timeout.total_seconds()
    pause = 0.05
    while True:
        try:
            snapshot = outcome(runtime, txn_id)
            break
        except UnavailableError as error:
            if time.monotonic() + pause >= deadline:
                raise CommitUnknownError(txn_id) from error
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
    if snapshot is None:
        raise lost
    return snapshot


def _check_key(connection: sa.Connection, runtime: TenantRuntime, work: Workspace) -> None:
    key = work.idempotency_key
    if key is not None and snapshot_of_key(connection, runtime.tenant, key) is not None:
        raise ConflictError(f"another transaction with the idempotency key {key!r} was first")


def _still_right(connection: sa.Connection, prepared: Prepared, newest: int) -> bool:
    if newest == prepared.newest:
        return True
    if prepared.names_its_snapshot:
        return False
    ids = [table.work.base.id for table in prepared.tables if table.work.base is not None]
    moved = t.own_table.c
    return (
        connection.execute(
            sa.select(moved.table_id)
            .where(
                moved.table_id.in_(ids),
                sa.or_(
                    moved.last_change_snapshot > prepared.newest,
                    moved.last_alter_snapshot > prepared.newest,
                    moved.last_rewrite_snapshot > prepared.newest,
                ),
            )
            .limit(1)
        ).first()
        is None
    )


class _Preparation:
    """What a commit will write, found out for the newest snapshot."""

    def __init__(
        self,
        runtime: TenantRuntime,
        connection: sa.Connection,
        work: Workspace,
        base: int,
        newest: int | None = None,
    ) -> None:
        """`newest` is the newest snapshot, as far as is known; None: to be asked for."""
        self._runtime, self._connection, self._work = runtime, connection, work
        self._base = base
        self._newest = lookup.newest_snapshot(connection) if newest is None else newest
        self._moves = Moves(runtime, connection)

    def run(self) -> Prepared:
        prepared = Prepared(newest=self._newest)
        try:
            for table in self._work.changed_tables():
                if self._newest > self._base:
                    self._check_unaltered(table)
                prepared.tables.append(PreparedTable(work=table))
                if not table.dropped:
                    self._prepare(prepared.tables[-1])
        except BaseException:
            self._runtime.storage.delete(prepared.delete_paths())
            raise
        return prepared

    def _check_unaltered(self, table: TableWork) -> None:
        if table.base is None:
            return
        c = t.own_table.c
        query = sa.select(c.last_alter_snapshot).where(c.table_id == table.base.id)
        altered = self._connection.execute(query).scalar_one_or_none()
        if altered is None or altered > self._base:
            when = "long ago" if altered is None else f"snapshot {altered}"  # None: also purged
            raise ConflictError(
                f"{table.base.full_name} was altered or dropped by another transaction "
                f"({when}): run this one again"
            )

    def _prepare(self, prepared: PreparedTable) -> None:
        table = prepared.work
        for file in table.files:
            removed = table.removed.get(file.key, NONE)
            if len(removed) == file.rows:
                continue  # written and deleted by this transaction: as if it had never been
            prepared.files.append(file)
            if len(removed):
                self._delete(prepared, file, NOTHING, removed)
        if self._newest > self._base and table.info.key and table.files:
            self._check_keys(table)
        self._delete_committed(prepared)
        for rewrite in table.rewrites:
            self._move(prepared, rewrite)
        if prepared.deletes:
            self._runtime.storage.sync(table.info.path)

    def _delete_committed(self, prepared: PreparedTable) -> None:
        """Delete rows of files that others may have deleted rows of meanwhile."""
        table = prepared.work
        touched = [file for file in table.committed or () if file.key in table.removed]
        if table.base is None or not touched:
            return
        now = self._now(table.base, touched)
        places = [(file, table.removed[file.key]) for file in now.values()]
        gone = {file: table.removed[file.key] for file in touched if file.id not in now}
        if gone:
            moved = self._moves.find(table.base, gone, self._base, self._newest)
            if moved is None:
                raise _rows_gone(table)
            places = merged([*places, *moved])
        for file, positions in places:
            old = self._runtime.deletes.read(file.deletes)
            if len(np.intersect1d(old.positions, positions, assume_unique=True)):
                raise _rows_gone(table)
            if len(union([old.positions, positions])) == file.rows:
                prepared.ended.append(file)
            else:
                self._delete(prepared, file, old, positions)

    def _move(self, prepared: PreparedTable, rewrite: Rewrite) -> None:
        """Let rows go to new files, but for those that others have deleted meanwhile."""
        table = prepared.work.base
        assert table is not None
        now = self._now(table, list(rewrite.sources))
        gone = [before for before in rewrite.sources if before.id not in now]
        if gone and self._moves.any_moved(gone):
            raise ConflictError(
                f"{table.full_name}: somebody else has compacted some of the same files"
            )
        late = {
            before: late_deletes(self._runtime, before, now.get(before.id), self._base)
            for before in rewrite.sources
        }
        removed = self._moves.carry(late, rewrite.outputs)
        for output in rewrite.outputs:
            positions = removed.get(output.key, NONE)
            if len(positions) == output.rows:
                continue
            prepared.files.append(output)
            if len(positions):
                self._delete(prepared, output, NOTHING, positions)
        prepared.moved += now.values()
        self._runtime.step("deletes carried over")

    def _now(self, table: TableInfo, files: list[DataFile]) -> dict[int, DataFile]:
        """Those files as they are by now, by their ids; without those that have ended."""
        if self._newest > self._base:
            ids = [file.id for file in files]
            files = table_files.files_by_id(self._connection, table, ids, self._newest)
        return {file.id: file for file in files}

    def _delete(
        self, prepared: PreparedTable, file: DataFile, old: Deleted, positions: Positions
    ) -> None:
        """Write a delete file, with what was deleted before."""
        written = write_deletes(
            self._runtime.storage,
            data_path=file.path,
            old=old,
            new=positions,
            snapshot=self._newest + 1,
            txn_id=self._work.id,
        )
        prepared.deletes.append((file, written))
        self._runtime.step("delete file written")

    def _check_keys(self, table: TableWork) -> None:
        """No key that we insert may have come in: only files committed since the base have it."""
        if table.base is None:
            return
        since = table_files.files_begun(self._connection, table.base, self._base, self._newest)
        came = [file for file in since if file.op is not Op.COMPACTION]
        new = [file for file in came if file.end is None]
        moved = self._moves.first_id_of(came) if any(file.rewritten for file in came) else None
        if moved is not None:
            # What came in may be in files of a compaction by now, among rows that were there.
            new += [file for file in since if file.op is Op.COMPACTION and file.end is None]
        if not new:
            return
        scan = Scan.of(table.info, self._newest, new)
        stats = table_files.file_stats(self._connection, table.base, table.info.key, self._newest)
        for written in table.written:
            keys = keys_of_files(self._runtime, table.info, written)
            places = find_keys(self._runtime, keys, scan, stats)
            if moved is not None:
                places = self._moves.from_id(places, new, moved)
            if places:
                shown = show_keys(self._runtime, table.info, places, new)
                raise ConflictError(
                    f"{table.info.full_name}: another transaction inserted the same keys first: "
                    f"{shown}; run this one again"
                )


def _rows_gone(table: TableWork) -> ConflictError:
    return ConflictError(
        f"{table.info.full_name}: rows that this transaction changes were changed by another "
        "that committed first: run this one again"
    )
