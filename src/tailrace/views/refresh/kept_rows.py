"""Rows of tables that are kept in memory from one refresh of a view to the next.

Where a key can be in every row group, to find its rows is to decode the whole table. If a condition
on another table, which has not changed, leaves few keys, the rows of all of them are found once.
From then on they follow the table's changes, whichever keys a refresh asks for.

Always true: what is kept are the rows of a table at a snapshot that have one of some values in a
column (and may meet a condition, whose other rows nobody needs). What cannot be brought to the
present, or lacks a key, is found anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.store.find_rows import Wanted, can_hold, find_rows
from tailrace.store.open_file import KeptRows
from tailrace.store.scan import Scan, Search
from tailrace.views.incremental.program import WEIGHT, Fetch
from tailrace.views.query.trees import shape
from tailrace.views.refresh.compile import all_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.store.runtime import Runtime
    from tailrace.views.refresh.execution import InMemory
    from tailrace.views.refresh.sources import SourceReads

# Rows to look at for some keys, from which on it is worth it to keep what is found.
_WORTH = 500_000


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A step of a run that looks rows of a table up by keys."""

    runtime: Runtime
    reads: SourceReads
    memory: InMemory
    step: Fetch
    source: Scan  # with the columns that are needed
    wanted: Wanted  # the keys
    where: pc.Expression | None  # holds for all rows that are needed
    text: str  # of `where`

    def rows(self) -> pa.Table | None:
        """The rows with the keys; None if they are not kept."""
        cache, sources, name = self.runtime.kept_files.rows, self.reads.sources, self.step.source
        if self.step.among is None or cache is None or not sources.is_keyed(name):
            return None
        table, among = self.source.table, shape(self.step.among)
        place = (sources.job, table.uuid, table.columns, self.step.own, self.text, among)
        kept = cache.get(place)
        if kept is not None and kept.at != self.source.at:
            kept = self._brought_on(kept)
        if kept is None or not _holds(kept.values, self.wanted):
            kept = self._found()
        if kept is None:
            return None
        cache.replace(place, kept)
        return None if kept.rows is None else _with(kept.rows, self.wanted)

    def _brought_on(self, kept: KeptRows) -> KeptRows | None:
        """The same with the change of the table; None if it is of another time."""
        sources, name = self.reads.sources, self.step.source
        if not sources.was_same(name, kept.at):
            return None
        rows = kept.rows
        if rows is None or name not in sources.changed:
            return replace(kept, at=self.source.at)
        delta = self.memory.delta(self.reads.delta_leaf(name))
        if delta is None:
            return None
        near = _with(delta, Wanted(self.wanted.column, kept.values))
        came = near.filter(pc.field(WEIGHT) > 0).select(rows.column_names).cast(rows.schema)
        if self.where is not None:
            came = came.filter(self.where)
        gone = near.filter(pc.field(WEIGHT) < 0)
        if gone.num_rows:
            rows = _without(rows, gone, sources.key(name))
        rows = pa.concat_tables([rows, came]).combine_chunks()
        return replace(kept, at=self.source.at, rows=rows)

    def _found(self) -> KeptRows | None:
        """The rows of all keys, looked for; None if that isn't worth it, or keys are unknown."""
        runtime, wanted = self.runtime, self.wanted
        if not len(wanted.values):
            return None
        if Search(runtime, self.memory.pruned(self.source, wanted), wanted).rows < _WORTH:
            return None
        keys = self.memory.answer(all_keys(self.step))
        if keys is None or not can_hold(wanted.column.type, keys.column(0).type):
            return None
        every = Wanted(wanted.column, keys.column(0).combine_chunks())
        if not _holds(every.values, wanted):
            return None
        source = self.memory.pruned(self.source, every)
        found = find_rows(runtime, source, every, limit=self.memory.limit, where=self.where)
        self.reads.rows += found.searched
        rows = found.rows
        if rows is not None and not runtime.kept_files.fits(rows):
            rows = None
        return KeptRows(at=self.source.at, values=every.values, rows=rows)


def _with(rows: pa.Table, wanted: Wanted) -> pa.Table:
    """The rows that have a wanted value."""
    return rows.filter(pa.array(wanted.found_in(rows.select([wanted.column.name]))))


def _without(rows: pa.Table, gone: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key no other row has."""
    # By numbers instead of names: Arrow takes a name that begins with a dot for a path.
    names = [str(number) for number in range(len(key))]
    numbered = rows.select(key).rename_columns(names)
    numbered = numbered.append_column("row", pa.array(np.arange(rows.num_rows)))
    stays = numbered.join(gone.select(key).rename_columns(names), names, join_type="left anti")
    return rows.take(np.sort(stays.column("row").to_numpy()))


def _holds(values: pa.Array, wanted: Wanted) -> bool:
    """Whether all wanted values are among some."""
    return not wanted.has_null and all(pc.is_in(wanted.values, value_set=values).to_pylist())
