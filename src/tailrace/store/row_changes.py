"""Adding and deleting rows, in a transaction's workspace: new files, and positions in old ones.

Always true: an object has the transaction's id in its name, and the transaction is entered in the
catalog before its first object, so that the sweep can tell what a dead one has left behind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tailrace.errors import Action, Fix, InvalidError
from tailrace.store import rows as row_checks
from tailrace.store.files import DataFile, Op, PositionsByFile, union
from tailrace.store.find_rows import (
    Keys,
    find_keys,
    keys_of_files,
    keys_of_frame,
    keys_of_rows,
    show_keys,
)
from tailrace.store.names import split_name
from tailrace.store.predicate import matching
from tailrace.store.scan import Scan
from tailrace.store.schema import TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.workspace import Draft, Rewrite, TableWork
from tailrace.store.write import FileWriter, Written, fit_local, select_columns, write_rows


class RowChanges(Draft):
    """The rows that a transaction writes and deletes."""

    @abstractmethod
    def _register(self) -> None:
        """Enter the transaction in the catalog, before its first object."""

    def append(self, schema: str, name: str, rows: object) -> None:
        """Add rows; raise InvalidError for keys that exist already."""
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

    def delete(self, schema: str, name: str, what: object) -> None:
        """Delete the rows that match a predicate in Spark SQL, or that have one of the keys."""
        work = self._find_own(schema, name)
        scan = self._scan(work)
        if isinstance(what, str):
            places = matching(self._runtime, scan, what, self._stats_reader(work))
        else:
            places = self._find_keys(work, self._given_keys(work.info, what), scan)
        if places:
            self._register()
            work.remove(places)

    def remove(self, name: str, places: PositionsByFile) -> None:
        """Delete the rows at these places: positions by file key, from a scan of this one.

        For consumers that have found the rows themselves, with `to_df(…, places=True)`.
        """
        work = self._find_own(*split_name(name))
        removed = {key: union([positions]) for key, positions in places.items() if len(positions)}
        rows = {live.file.key: live.file.rows for live in self._scan(work).files}
        for key, positions in removed.items():
            if key not in rows or positions[0] < 0 or positions[-1] >= rows[key]:
                raise InvalidError(
                    f"{work.info.full_name}: places of file {key} are not of this table as this "
                    "transaction sees it: find them with txn.scan(…)"
                )
        if removed:
            self._register()
            work.remove(removed)

    def add_written(self, schema: str, name: str, written: Written, op: Op) -> None:
        """Add rows that others have put in files under this transaction's id; see `hand_over`."""
        self._add(self._find_own(schema, name), written, op)

    def rewrite(self, name: str, sources: Sequence[DataFile], outputs: Sequence[DataFile]) -> None:
        """Have the rows of some files move to others, which have all rows of them that it sees.

        That is no change: whoever deletes one of the rows meanwhile will have deleted it. Who
        calls this may write to any table; the sources are from `scan`.
        """
        work = self._find(*split_name(name))
        if work.changes_rows or work.alters:
            raise InvalidError(f"{work.info.full_name} is changed in this transaction already")
        self._register()
        work.rewrites.append(Rewrite(sources=tuple(sources), outputs=tuple(outputs)))

    def own_objects(self, paths: Iterable[str]) -> None:
        """Adopt objects that have its id in their names: a rollback deletes them."""
        self._work.objects.extend(paths)

    def object_owner(self) -> str:
        """The prefix for the names of objects that others write for this transaction."""
        self._register()
        return self._work.id

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

    def written(self) -> list[tuple[TableInfo, int, int]]:
        """The tables whose rows it changes, with rows written or deleted, and bytes written."""
        tables = []
        for work in self._work.tables.values():
            if work.changes_rows:
                rows = sum(file.rows for file in work.files)
                rows += sum(len(positions) for positions in work.removed.values())
                tables.append((work.info, rows, sum(file.size for file in work.files)))
        return tables

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
            places = self._find_keys(work, keys_of_files(self._runtime, table, written), scan)
            if places and op is Op.APPEND:
                files = [live.file for live in scan.files]
                shown = show_keys(self._runtime, table, places, files)
                raise InvalidError(
                    f"{table.full_name}: these keys exist already: {shown}",
                    fix=Fix(Action.UPSERT),
                )
            work.remove(places)
        work.written.append(written)

    def _given_keys(self, table: TableInfo, given: object) -> Keys:
        """The keys that a user wants to delete; other columns are ignored."""
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
                return keys_of_frame(table, selected)
            rows = few.rename_columns([column.name for column in columns])
        fitted = fit_local(rows, table, columns)
        return keys_of_rows(self._runtime, table, fitted)

    def _find_keys(self, work: TableWork, keys: Keys, scan: Scan) -> PositionsByFile:
        if not scan.files:
            return {}
        return find_keys(self._runtime, keys, scan, self._stats_reader(work)(work.info.key))

    def _stats_reader(self, work: TableWork) -> Callable[[Iterable[int]], Any]:
        def read(column_ids: Iterable[int]) -> Any:
            if work.base is None:
                return {}
            with self._at_base() as mirror:
                return mirror.file_stats(work.base, tuple(column_ids), self.base)

        return read
