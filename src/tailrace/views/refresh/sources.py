"""What one refresh of a view reads: its sources at both ends of the range, and their changes.

Always true: every source is read at the job's two labels. A table is read at that snapshot, another
view in its version with that label.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidError
from tailrace.propagation.changes import Changes, SharedRead, SourceChanges
from tailrace.propagation.consumer import JobContext
from tailrace.propagation.job import RunKind
from tailrace.propagation.outputs import version_at
from tailrace.spark_sql import types
from tailrace.store.changes import INSERT, Feed, difference, plan
from tailrace.store.names import split_name
from tailrace.store.scan import Scan
from tailrace.store.schema import CHANGE, TableInfo
from tailrace.store.table import scan_at
from tailrace.store.transaction import Transaction
from tailrace.views.definition import Definition, Input
from tailrace.views.incremental.program import WEIGHT, End, Leaf, leaves_of
from tailrace.views.refresh.planner import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sources:
    """See the module."""

    def __init__(
        self, definition: Definition, changes: Changes, txn: Transaction, job: JobContext
    ) -> None:
        self._definition, self._changes, self._txn, self._job = definition, changes, txn, job
        self._runtime = txn.runtime
        self._ends: dict[tuple[str, End, bool], Scan] = {}
        # None if there is no earlier version.
        self.since = job.since if changes.kind is RunKind.TAIL else None

    @property
    def inputs(self) -> dict[str, Input]:
        """By the stored table's name, in the order of their numbers in programs."""
        return self._definition.sources

    def table(self, name: str, *, wide: bool = False) -> TableInfo:
        """A source's table, with the columns that the view's plan uses, or with all."""
        table = self.inputs[name].table if wide else self._definition.tables[name]
        assert table is not None
        return table

    def facts(self) -> dict[str, Source]:
        """What the planner needs to know."""
        changed = self.changed
        return {
            name: Source(
                rows=lambda name=name: self.end(name, End.NEW).rows,  # type: ignore[misc]
                change=_feed_of(changed.get(name)),
            )
            for name in self.inputs
        }

    def end(self, name: str, end: End, *, wide: bool = False) -> Scan:
        """A source at one end of the range."""
        if (name, end, wide) not in self._ends:
            given, table = self.inputs[name], self.table(name, wide=wide)
            label = self._job.to if end is End.NEW else self.since
            assert label is not None
            if given.view is None:
                scan = scan_at(self._runtime, table, label)
            elif end is End.NEW and self._txn.acts_for(given.view.job):
                # This very transaction refreshed it.
                scan = replace(self._txn.scan(*split_name(name)), table=table)
            else:
                scan = scan_at(self._runtime, table, self._version(table, label))
            self._ends[name, end, wide] = scan
        return self._ends[name, end, wide]

    def _version(self, table: TableInfo, label: int) -> int:
        """The commit that made another view what it is at a label."""
        with self._runtime.database.read() as connection:
            version = version_at(connection, table.id, label)
        if version is None:
            raise InvalidError(f"{table.full_name} has no version for snapshot {label}")
        return version

    @cached_property
    def changed(self) -> dict[str, SourceChanges]:
        """The changes of the sources that changed in the range."""
        if self.since is None:
            return {}
        changes = {
            name: self._changes[name] if given.view is None else self._changes_of_view(name)
            for name, given in self.inputs.items()
        }
        return {name: source for name, source in changes.items() if source.rows}

    def _changes_of_view(self, name: str) -> SourceChanges:
        feed = difference(self._runtime, self.end(name, End.OLD), self.end(name, End.NEW))
        return SourceChanges(self._runtime, SharedRead(self._runtime, lambda _columns: feed), None)

    @property
    def job(self) -> int:
        """The view's job."""
        return self._job.id

    def key(self, name: str) -> list[str]:
        """The columns of a source's primary key."""
        return list(self.inputs[name].key)

    def is_keyed(self, name: str) -> bool:
        """Whether a source is a table with a primary key, rather than a view."""
        return self.inputs[name].view is None and bool(self.key(name))

    def was_same(self, name: str, label: int) -> bool:
        """Whether a table had the same rows at an earlier label as at the start of the range."""
        since = self.since
        if since is None or label > since or not self._runtime.mirror.has(label):
            return False
        return (
            label == since or not plan(self._runtime, self.table(name), label, since, net=True).rows
        )

    def delta(self, name: str) -> pa.Table:
        """The change of a source in memory: the columns that the view uses, then `_w`."""
        rows = self.changed[name].to_arrow()
        is_insert = pc.equal(rows.column(CHANGE), INSERT)
        weight = pc.if_else(is_insert, pa.scalar(1, pa.int32()), pa.scalar(-1, pa.int32()))
        return rows.select(self._columns(name)).append_column(WEIGHT, weight)

    def delta_frame(self, name: str) -> DataFrame:
        """The same as a DataFrame."""
        weight = f"CASE WHEN {CHANGE} = '{INSERT}' THEN 1 ELSE -1 END AS {WEIGHT}"
        columns = map(types.quote, self._columns(name))
        return self.changed[name].to_df().selectExpr(*columns, weight)

    def _columns(self, name: str) -> list[str]:
        return [column.name for column in self.table(name).columns]


class SourceReads:
    """What one run reads of its sources, and how many rows."""

    def __init__(self, sources: Sources, *, in_memory: bool, wide: bool) -> None:
        """`in_memory`: changes are read there; `wide`: new rows are read with all columns."""
        self.sources, self._in_memory, self._wide = sources, in_memory, wide
        self.leaves = leaves_of(sources.inputs)
        self.rows = 0

    def end(self, source: str, end: End) -> Scan:
        """A source at one end of the range."""
        return self.sources.end(source, end, wide=self._wide and end is End.NEW)

    def delta_leaf(self, source: str) -> str:
        """The name of a source's change."""
        number = list(self.sources.inputs).index(source)
        return Leaf(source=source, number=number).name

    def delta(self, leaf: Leaf) -> pa.Table | None:
        """The change of a source, if changes are read into memory."""
        return self.sources.delta(leaf.source) if self._in_memory else None


def _feed_of(changes: SourceChanges | None) -> Feed | None:
    plan = None if changes is None else changes.plan
    assert not isinstance(plan, Scan)  # after the first run there are only changes
    return plan
