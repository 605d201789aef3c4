"""Compaction as tasks: finds which files of which tables are worth a rewrite, and rewrites them.

A task has the files that it is about, by their ids. Whatever happened to them since it was entered,
it takes those that are still there: files never change, and of those that are gone others have
taken the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.errors import InvalidError
from tailrace.propagation import maintenance
from tailrace.propagation.monitor import PRODUCERS
from tailrace.propagation.task_types import TYPES, TaskContext, TaskResult
from tailrace.store import row_ids
from tailrace.store.compaction import FileGroup, choose_all, choose_files
from tailrace.store.files import DataFile
from tailrace.store.names import quoted_name
from tailrace.store.predicate import necessary_conditions
from tailrace.store.rewrite import rewrite_files
from tailrace.store.runtime import Runtime, TenantRuntime
from tailrace.store.scan import Scan
from tailrace.store.schema import TableInfo
from tailrace.store.stats import Bounds, Comparisons, known_of
from tailrace.store.tasks import NewTask, Scope
from tailrace.store.transaction import Heartbeat

# A full compaction takes several rounds where one rewrite would be too large. More than so many are
# not needed, unless others write as fast.
_ROUNDS = 10


class _Compacting:
    """Rewrites some files of a table."""

    # As urgent as the care of indexes: the older of the two goes first, and neither starves.
    name, priority, keeps_history = "compact", 20, True

    def run(self, context: TaskContext) -> TaskResult:
        runtime, scope = context.runtime, context.task.scope
        assert scope.table is not None
        assert scope.files is not None
        with context.begin() as txn:
            table = runtime.mirror.table_by_id(scope.table, txn.base)
            if table is None:
                return {"note": "the table was dropped"}
            name = quoted_name(table.schema, table.name)
            scan = txn.scan(table.schema, table.name)
            lives = [live for live in scan.files if live.file.id in scope.files]
            if not lives:
                return {"note": "others have rewritten the files, or deleted their rows"}
            with runtime.database.read() as connection:
                firsts = row_ids.first_ids(connection, (live.file for live in lives))
            owner = txn.object_owner()
            outputs = rewrite_files(runtime, scan.table, lives, scan.at, owner, firsts)
            txn.own_objects(file.path for file in outputs)
            runtime.step("compacted files written")
            txn.rewrite(name, [live.file for live in lives], outputs)
            result = {
                "files": len(lives),
                "into": len(outputs),
                "rows": sum(file.rows for file in outputs),
                "bytes": sum(file.size for file in outputs),
            }
            context.complete(txn, result)
        return result


TYPES[_Compacting.name] = _Compacting()


def _task(table: TableInfo, group: FileGroup) -> NewTask:
    return NewTask(
        type=_Compacting.name,
        scope=Scope(table=table.id, files=frozenset(file.id for file in group.files)),
        spec={"reason": group.reason},
        priority=_Compacting.priority,
    )


def _candidates(runtime: Runtime, table_ids: Sequence[int]) -> list[int]:
    """Those of some tables whose files are worth a look: many, with deleted rows, or large."""
    settings, files, deletes = runtime.settings, dl.data_file.c, dl.delete_file.c
    live = sa.select(files.table_id).where(
        files.table_id.in_(table_ids), files.end_snapshot.is_(None)
    )
    query = sa.union(
        live.group_by(files.table_id).having(sa.func.count() >= settings.compact_files),
        live.where(files.file_size_bytes > settings.file_bytes),
        sa.select(deletes.table_id).where(
            deletes.table_id.in_(table_ids), deletes.end_snapshot.is_(None)
        ),
    )
    with runtime.database.read() as connection:
        return sorted(connection.execute(query).scalars())


def due(runtime: Runtime, table_ids: Sequence[int]) -> Iterator[NewTask]:
    """The compactions that some tables are worth."""
    newest = runtime.mirror.newest()
    for number in _candidates(runtime, table_ids):
        table = runtime.mirror.table_by_id(number, newest)
        if table is not None:
            files = runtime.mirror.data_files(table, newest)
            groups = choose_files(files, runtime.settings, looked_up=table.is_looked_up)
            yield from (_task(table, group) for group in groups)


PRODUCERS.append(due)


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Files of a table that were rewritten together, or that are worth it."""

    table: str
    reason: str
    files: int
    rows: int
    into: int | None = None  # files; None: it was not done
    bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def compact(
    runtime: TenantRuntime,
    heartbeat: Heartbeat,
    table: TableInfo,
    shown: str,
    *,
    where: str | None = None,
    full: bool = False,
    dry_run: bool = False,
) -> Iterator[Compaction]:
    """Compact a table here and now, until nothing is worth it any more; or say what is.

    `shown` is what users call it. `where`: only files that may have a row that fulfils a condition.
    """
    for _ in range(1 if dry_run else _ROUNDS):
        groups = _groups(runtime, table, where=where, full=full)
        for group in groups:
            done = None
            if not dry_run:
                done = maintenance.do_now(runtime, heartbeat, _task(table, group))
            yield Compaction(
                table=shown,
                reason=group.reason,
                files=len(group.files),
                rows=group.rows,
                into=None if done is None else done.get("into"),
                bytes=None if done is None else done.get("bytes"),
            )
        if not groups:
            return


def _groups(
    runtime: TenantRuntime, table: TableInfo, *, where: str | None, full: bool
) -> list[FileGroup]:
    newest = runtime.mirror.newest()
    files: Iterable[DataFile] = runtime.mirror.data_files(table, newest)
    if where is not None:
        files = _matching(runtime, Scan.of(table, newest, files), where)
    settings, looked_up = runtime.settings, table.is_looked_up
    if not full:
        return choose_files(files, settings, looked_up=looked_up)
    return choose_all(files, settings, looked_up=looked_up, bounds=_bounds(runtime, table, newest))


def _matching(runtime: TenantRuntime, scan: Scan, where: str) -> list[DataFile]:
    """The files that may have a row that fulfils a condition, by their statistics."""
    conditions = Comparisons.of(necessary_conditions(where, scan.table))
    if not conditions.every:
        raise InvalidError(
            f"cannot tell by {where!r} which files to compact: compare columns with values, "
            "as in day >= '2026-01-01'"
        )
    statistics = runtime.mirror.file_stats(scan.table, tuple(conditions.columns), scan.at)
    return [live.file for live in scan.pruned(conditions, statistics).files]


def _bounds(runtime: TenantRuntime, table: TableInfo, at: int) -> dict[int, Bounds]:
    """The bounds of the first key column, by the files' ids."""
    if not table.key:
        return {}
    column = table.key_columns[0]
    statistics = runtime.mirror.file_stats(table, (column.id,), at)
    files = runtime.mirror.data_files(table, at)
    return {file.id: known_of(file, statistics)(column).bounds for file in files}
