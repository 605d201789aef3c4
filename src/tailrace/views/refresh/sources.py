"""What one refresh of a view reads: its sources at both ends of the range, and their changes.

Always true: every source is read at the job's two labels. A table has its rows at a snapshot; of
another view, the version with that label is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.propagation import versions
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import JobContext
from tailrace.propagation.job import Kind
from tailrace.spark_sql import types
from tailrace.store import changes as feed
from tailrace.store.difference import difference
from tailrace.store.scan import Scan
from tailrace.store.schema import CHANGE, TableInfo, split_name
from tailrace.store.table import scan_at
from tailrace.store.transaction import Transaction
from tailrace.views.definition import Definition, Input
from tailrace.views.incremental.program import WEIGHT, State
from tailrace.views.refresh.planner import Change, Source, key_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Delta(Change):
    """A source's change, and how it is read."""

    local: Callable[[], pa.Table]  # read into memory: the columns, then `_w`
    frame: Callable[[], DataFrame]  # the same as a DataFrame


class Sources:
    """See the module."""

    def __init__(
        self, definition: Definition, changes: Changes, txn: Transaction, job: JobContext
    ) -> None:
        self._definition, self._changes, self._txn, self._job = definition, changes, txn, job
        self._runtime = txn.runtime
        self._ends: dict[tuple[str, State, bool], Scan] = {}
        # None where there is no earlier version.
        self.since = job.since if changes.kind is Kind.TAIL else None

    @cached_property
    def inputs(self) -> dict[str, Input]:
        """By the stored table's name, in the order of their numbers in programs."""
        return {given.name: given for given in self._definition.inputs.values()}

    def table(self, name: str, *, wide: bool = False) -> TableInfo:
        """A source's table, with the columns that the view's plan uses, or with all."""
        table = self.inputs[name].table
        assert table is not None
        return table if wide else table.narrowed(self._definition.fields[name])

    def facts(self) -> dict[str, Source]:
        """What a plan depends on."""
        changed = self.changed
        return {
            name: Source(
                rows=lambda name=name: self.end(name, State.NEW).rows,  # type: ignore[misc]
                table=self.table(name),
                key=key_of(given),
                change=changed.get(name),
            )
            for name, given in self.inputs.items()
        }

    def end(self, name: str, state: State, *, wide: bool = False) -> Scan:
        """A source at one end of the range."""
        if (name, state, wide) not in self._ends:
            given, table = self.inputs[name], self.table(name, wide=wide)
            label = self._job.to if state is State.NEW else self.since
            assert label is not None
            if given.view is None:
                made = scan_at(self._runtime, table, label)
            elif state is State.NEW and self._txn.acts_for(given.view.job):
                # Refreshed by this very transaction.
                made = replace(self._txn.scan(*split_name(name)), table=table)
            else:
                made = scan_at(self._runtime, table, self._version(table, label))
            self._ends[name, state, wide] = made
        return self._ends[name, state, wide]

    def _version(self, table: TableInfo, label: int) -> int:
        """The commit that made another view what it is at a label."""
        with self._runtime.database.read() as connection:
            found = versions.version_at(connection, table.id, label)
        if found is None:
            raise InvalidError(f"{table.full_name} has no version for snapshot {label}")
        return found

    @cached_property
    def changed(self) -> dict[str, Delta]:
        """The sources that changed in the range."""
        if self.since is None:
            return {}
        found = {
            name: self._of_table(name) if given.view is None else self._of_view(name)
            for name, given in self.inputs.items()
        }
        return {name: delta for name, delta in found.items() if delta.rows}

    def _of_table(self, name: str) -> Delta:
        source = self._changes[name]
        columns = [c.name for c in self.table(name).columns]

        def frame() -> DataFrame:
            inserts = source.inserts.select(*map(types.quote, columns)).selectExpr(
                "*", f"1 AS {WEIGHT}"
            )
            deletes = source.deletes.select(*map(types.quote, columns)).selectExpr(
                "*", f"-1 AS {WEIGHT}"
            )
            return inserts.unionAll(deletes)

        return Delta(
            rows=source.rows,
            rows_decoded=source.rows_decoded,
            fits=source.fits,
            inserts_only=source.only_inserts,
            local=lambda: _with_weights(source.table(), columns),
            frame=frame,
        )

    def _of_view(self, name: str) -> Delta:
        from tailrace.store import spark_changes

        found = difference(self._runtime, self.end(name, State.OLD), self.end(name, State.NEW))
        columns = [c.name for c in self.table(name).columns]

        def frame() -> DataFrame:
            rows = spark_changes.to_df(self._runtime, found)
            weight = f"CASE WHEN {CHANGE} = 'insert' THEN 1 ELSE -1 END AS {WEIGHT}"
            return rows.selectExpr(*map(types.quote, columns), weight)

        return Delta(
            rows=found.rows,
            rows_decoded=found.rows_read(self._runtime.settings.row_group_rows),
            fits=lambda rows: feed.is_small(self._runtime, found, rows),
            inserts_only=not found.some and all(p.change == feed.INSERT for p in found.whole),
            local=lambda: _with_weights(feed.to_arrow(self._runtime, found), columns),
            frame=frame,
        )


def _with_weights(changes: pa.Table, columns: list[str]) -> pa.Table:
    """Changes in memory with `_w` in place of their kind."""
    is_insert = pc.equal(changes.column(CHANGE), "insert")
    weight = pc.if_else(is_insert, pa.scalar(1, pa.int32()), pa.scalar(-1, pa.int32()))
    return changes.select(columns).append_column(WEIGHT, weight)
