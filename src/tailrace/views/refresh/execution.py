"""Runs programs.

Each step runs in this process if possible (`InMemory`), else on Spark (`on_spark`). Small results
stay in memory: keys that follow from changes there, and the rows found by these keys. The query
over them is answered here where that gives the same as Spark, and else is one action of Spark; what
is large is left to Spark as one query. Either way the steps mean the same (see `program`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb.engine import execute
from tailrace.spark_sql.types import can_be_key
from tailrace.store import scan
from tailrace.store.find_rows import Wanted, can_hold, find_rows
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, Scan
from tailrace.store.schema import FILE, POS
from tailrace.store.spark_actions import spark_faults
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import Fetch, Keys, Relation, Step
from tailrace.views.refresh.compile import RESULT
from tailrace.views.refresh.kept_rows import Lookup
from tailrace.views.refresh.needed_rows import (
    StoredLimit,
    arrow_condition,
    plain_rows,
    selected_rows,
)
from tailrace.views.refresh.on_spark import OnSpark
from tailrace.views.refresh.programs import NOT_COMPILED, Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.views.refresh.sources import SourceReads


class Run:
    """One run of one or more programs, with what they share."""

    def __init__(
        self,
        runtime: Runtime,
        reads: SourceReads,
        *,
        stored: Callable[[], Scan] | None,
        names: Mapping[str, str],
        small: bool,
        tiny: bool = False,
        alone: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: the stored table's columns, with their names in programs.

        `small`, `tiny` and `alone`: see `OnSpark`. `check` raises if the run has to stop.
        """
        self._reads, self._stored, self._names = reads, stored, names
        self._small, self._check = small, check
        self._queries: dict[str, exp.Query] = {}  # relations that are computed on demand
        self._memory = InMemory(runtime, reads, self._queries, lambda: self._spark.frames)
        self._spark = OnSpark(
            runtime, reads, self._queries, self._memory, small=small, tiny=tiny, alone=alone
        )

    @property
    def rows(self) -> int:
        """How many rows of sources and changes were read."""
        return self._reads.rows

    @property
    def session(self) -> SparkSession:
        return self._spark.session

    # --- programs ---------------------------------------------------------------------------

    def frame(self, prepared: Prepared) -> DataFrame:
        """Run a program's steps; returns the rows of its query as a DataFrame."""
        self._do_steps(prepared)
        return self._spark.sql(prepared.program.query)

    def collect(self, prepared: Prepared) -> pa.Table:
        """The same, in memory."""
        self._memory.compiled = prepared.compiled
        self._do_steps(prepared)
        self._check()
        rows = self._memory.answer(RESULT)
        if rows is None:
            with spark_faults():
                rows = self._spark.sql(prepared.program.query).toArrow()
        return rows

    def _do_steps(self, prepared: Prepared) -> None:
        for step in prepared.program.steps:
            self._check()
            if not self._has(step.name):
                self._do(step, prepared.conditions.get(step.name))
        if prepared.reads_stored and not self._has(stored_delta.STORED):
            self._read_stored(prepared.limit)

    def _has(self, name: str) -> bool:
        return name in self._memory.tables or name in self._spark.frames

    def _do(self, step: Step, condition: exp.Expr | None) -> None:
        if isinstance(step, Relation):
            self._queries[step.name] = step.query
        elif isinstance(step, Keys):
            if not (self._small and self._memory.keys(step)):
                self._spark.keys(step)
        else:
            self._fetch(step, condition)

    def _fetch(self, step: Fetch, condition: exp.Expr | None) -> None:
        whole = self._reads.end(step.source, step.end)
        source = replace(whole, table=whole.table.narrowed(sorted(step.fields)))
        left = self._memory.fetch(step, source, condition)
        if left is not None:
            self._spark.fetch(step, left)

    def _read_stored(self, limit: StoredLimit) -> None:
        assert self._stored is not None
        whole = self._stored()
        own = {c.name: self._names[c.name] for c in whole.table.columns}
        names = {**own, FILE: stored_delta.FILE, POS: stored_delta.POS}
        rows = self._memory.stored(whole, limit)
        if rows is not None:
            self.give(
                stored_delta.STORED, rows.rename_columns([names[c] for c in rows.schema.names])
            )
        else:
            frame = self._spark.stored(whole, limit)
            self.give_frame(stored_delta.STORED, frame.toDF(*(names[c] for c in frame.columns)))

    # --- relations --------------------------------------------------------------------------

    def share(self, other: Run) -> None:
        """Take over what another run of the same refresh has read of sources."""
        tables = other._memory.tables
        self._memory.tables |= {n: r for n, r in tables.items() if n in self._reads.leaves}

    def give(self, name: str, rows: pa.Table) -> None:
        """Give programs a relation of that name."""
        self._memory.tables[name] = rows

    def give_frame(self, name: str, rows: DataFrame) -> None:
        """The same for rows that only Spark has."""
        self._spark.frames[name] = rows

    def view(self, relation: str) -> str:
        """Spark's name for a relation."""
        return self._spark.view(relation)

    def view_of(self, reader: exp.Query, stored: str) -> str:
        """Spark's name for what readers see of a stored table, which is a relation."""
        tree = reader.copy()
        for table in tree.find_all(exp.Table):
            table.set("this", exp.to_identifier(stored))
        self._queries[f"v_{stored}"] = tree
        return self._spark.view(f"v_{stored}")

    def close(self) -> None:
        """Release what Spark holds."""
        self._spark.close()


# Stored rows up to which all of them are read rather than those that a change can touch.
_FEW_STORED = 5_000


class InMemory:
    """Relations in memory."""

    def __init__(
        self,
        runtime: Runtime,
        reads: SourceReads,
        queries: Mapping[str, exp.Query],
        elsewhere: Callable[[], Collection[str]],
    ) -> None:
        """`queries`: relations that are computed when asked for; `elsewhere`: those on Spark."""
        self._runtime, self._reads = runtime, reads
        self._queries, self._elsewhere = queries, elsewhere
        self.compiled = NOT_COMPILED
        self.tables: dict[str, pa.Table] = {}
        # Rows that one step may hold.
        self.limit = max(runtime.settings.local_rows, runtime.settings.memory_rows)

    def delta(self, name: str) -> pa.Table | None:
        """A relation's rows, if they are in memory already, or are a change that is to be."""
        leaf = self._reads.leaves.get(name)
        if name not in self.tables and leaf is not None and leaf.end is None:
            rows = self._reads.delta(leaf)
            if rows is not None:
                self.tables[name] = rows
        return self.tables.get(name)

    def rows(self, name: str) -> pa.Table | None:
        """A relation's rows, if they are in memory or few enough to be brought there."""
        rows = self.delta(name)
        if rows is None and name not in self._elsewhere():
            rows = self.answer(name) if name in self._queries else self._end(name)
            if rows is not None:
                self.tables[name] = rows
        return rows

    def _end(self, name: str) -> pa.Table | None:
        """All rows of a source at one end of the range, if that is few enough."""
        leaf = self._reads.leaves.get(name)
        if leaf is None or leaf.end is None:
            return None
        whole = self._reads.end(leaf.source, leaf.end)
        if not Budget.of(self._runtime.settings).for_rows(self.limit).covers(whole.cost):
            return None
        self._reads.rows += whole.rows
        return scan.to_arrow(self._runtime, whole)

    def answer(self, name: str) -> pa.Table | None:
        """The rows of a step, or of the program's query; None if Spark is needed."""
        query = self.compiled.queries.get(name)
        if query is None:
            return None
        tables = {}
        for needed in query.reads:
            rows = self.rows(needed)
            if rows is None:
                return None
            tables[needed] = rows
        return execute(query.text, query.types, tables, limit=self.limit)

    # --- steps ------------------------------------------------------------------------------

    def keys(self, step: Keys) -> bool:
        """Compute keys; False if this is not possible here."""
        # Without an engine, which takes longer to plan than most keys take to compare; else with
        # it, which knows all conditions; else, for Spark, a key too many is better than a job.
        rows = self._selected_keys(step)
        if rows is None:
            rows = self.answer(step.name)
        if rows is None:
            rows = self._plain_keys(step)
        if rows is not None:
            self.tables[step.name] = rows
        return rows is not None

    def _selected_keys(self, step: Keys) -> pa.Table | None:
        """Keys that are all values of columns in memory."""

        def held(name: str) -> pa.Table | None:
            if name in self._queries and name not in self.tables:
                return selected_rows(self._queries[name], held)
            return self.delta(name)

        rows = selected_rows(step.query, held)
        # To Arrow, the two zeros are different values.
        if rows is None or not all(map(can_be_key, rows.schema.types)):
            return None
        return rows.group_by(rows.column_names).aggregate([])

    def _plain_keys(self, step: Keys) -> pa.Table | None:
        """Keys, and maybe more, that are values of columns in memory: no engine is asked for."""
        rows = plain_rows(step.query, self._held)
        if rows is None or set(rows.column_names) != set(step.columns):
            return None
        if any(map(pa.types.is_nested, rows.schema.types)):
            return None
        return rows.group_by(rows.column_names).aggregate([])

    def _held(self, name: str) -> pa.Table | None:
        """A relation's rows, and maybe more, if they follow from what is in memory."""
        if name in self._queries:
            return plain_rows(self._queries[name], self._held)
        return self.delta(name)

    def fetch(self, step: Fetch, source: Scan, condition: exp.Expr | None) -> Scan | None:
        """Find the rows that have the keys; returns where they are if they are left to Spark."""
        keys = self.tables.get(step.keys)
        column = source.table.column(step.own)
        if keys is None or not can_hold(column.type, keys.column(step.key).type):
            return source
        wanted = Wanted(column, keys.column(step.key).combine_chunks())
        pruned = self.pruned(source, wanted)
        plain = pa.schema([(c.name, c.type) for c in source.table.columns])
        where = None if condition is None else arrow_condition(condition, plain)
        kept = Lookup(
            runtime=self._runtime,
            reads=self._reads,
            memory=self,
            step=step,
            source=source,
            wanted=wanted,
            where=where,
            text="" if condition is None else condition.sql("spark"),
        )
        rows = kept.rows()
        if rows is None:
            found = find_rows(self._runtime, pruned, wanted, limit=self.limit, where=where)
            if found.rows is None:
                return pruned
            self._reads.rows += found.searched
            rows = found.rows
        self.tables[step.name] = rows
        return None

    def stored(self, whole: Scan, limit: StoredLimit) -> pa.Table | None:
        """The stored rows with their places, if that is few enough."""
        small = scan.is_small(whole, self._runtime)
        if small and whole.rows <= _FEW_STORED:
            return scan.to_arrow_with_places(self._runtime, whole)
        for name, values in self._stored_values(limit):
            column = whole.table.column(name)
            if not can_hold(column.type, values.type):
                continue
            wanted = Wanted(column, values)
            pruned = self.pruned(whole, wanted)
            found = find_rows(self._runtime, pruned, wanted, limit=self.limit, places=True)
            if found.rows is not None:
                return found.rows
        return scan.to_arrow_with_places(self._runtime, whole) if small else None

    def _stored_values(self, limit: StoredLimit) -> Iterator[tuple[str, pa.Array]]:
        """Columns of the stored table, and all values of each that a touched row can have."""
        if limit.keys is not None and limit.keys[1] in self.tables:
            column, step, key = limit.keys
            yield column, self.tables[step].column(key).combine_chunks()
        for column, sources in limit.origins:
            values = self._values_of(sources)
            if values is not None:
                yield column, values

    def _values_of(self, sources: Sequence[tuple[str, str]]) -> pa.Array | None:
        """All values of columns of some relations, if those are in memory."""
        parts = []
        for relation, column in sources:
            rows = self.delta(relation)
            if rows is None:
                return None
            parts.append(rows.column(column))
        chunks = [chunk for part in parts for chunk in part.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], parts[0].type)

    def pruned(self, source: Scan, wanted: Wanted) -> Scan:
        """The files that may have wanted values."""
        stats = self._runtime.mirror.file_stats(source.table, (wanted.column.id,), source.at)
        return source.pruned(wanted, stats)
