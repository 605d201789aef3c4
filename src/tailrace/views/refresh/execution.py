"""Runs programs.

What is small is kept at hand: keys that follow from changes in memory, and rows that are found by
them, are Arrow tables. The query over those is answered in this process where that gives what
Spark would (`local`), and else is one action of Spark. What is large is left to Spark as one
query. Either way the steps mean the same (see `program`).
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb.engine import execute
from tailrace.store import file_lookup, scan, spark_scan
from tailrace.store.find_rows import Wanted, can_hold, find_rows, prune
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import FILE, POS
from tailrace.store.spark_faults import spark_faults
from tailrace.store.spark_session import SparkProvider
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import Fetch, Keys, State, Step
from tailrace.views.refresh.arrow_condition import arrow_condition
from tailrace.views.refresh.compiled import RESULT, Compiled
from tailrace.views.refresh.needed_rows import StoredLimit
from tailrace.views.refresh.programs import Prepared
from tailrace.views.refresh.session import small_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.views.refresh.sources import Sources

_numbers = itertools.count()
# Stored rows up to which all of them are read rather than those that a change can touch.
_FEW_STORED = 5_000


class NeedsSparkError(Exception):
    """What is in memory has to be given to Spark, but is too large for that."""


class Run:
    """One run of one program or more, with what they share."""

    def __init__(
        self,
        runtime: Runtime,
        sources: Sources,
        *,
        stored: Callable[[], Scan] | None,
        names: Mapping[str, str],
        small: bool,
        own_session: bool = False,
        wide: bool = False,
        tiny: bool = False,
        alone: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: the stored table's columns, and what programs call them.

        `small`: the changes are in memory; `tiny`: they are some ten thousand rows; `alone`: they
        are too many to be handed to Spark from there. `own_session`: only the user's session can
        answer the query. `wide`: of new rows all columns are read.
        """
        self._spark, self._tiny, self._alone = runtime.spark, tiny, alone
        self._runtime = replace(runtime, spark=_SessionOf(self))
        self._sources, self._numbered = sources, list(sources.inputs)
        self._wide, self._has_deltas = wide, small
        self._stored, self._names, self._small = stored, dict(names), small and not own_session
        self._check = check
        self._prefix = f"tailrace_{next(_numbers)}_"
        self._local: dict[str, pa.Table] = {}
        self._frames: dict[str, DataFrame] = {}
        self._queries: dict[str, exp.Query] = {}
        self._views: set[str] = set()
        self._persisted: list[DataFrame] = []
        self._compiled = Compiled()
        # Rows that one step may hold.
        self._limit = max(runtime.settings.local_rows, runtime.settings.memory_rows)
        self.rows = 0  # of sources and changes that were looked at

    @cached_property
    def session(self) -> SparkSession:
        """Asked for only when there is something that Spark has to do."""
        if self._alone:
            raise NeedsSparkError
        session = self._spark()
        return small_session(session, tiny=self._tiny) if self._small else session

    # --- programs ---------------------------------------------------------------------------

    def frame(self, prepared: Prepared) -> DataFrame:
        """The program's query as a DataFrame; its steps are done."""
        self._prepare(prepared)
        return self._sql(prepared.program.query)

    def _prepare(self, prepared: Prepared) -> None:
        for step in prepared.program.steps:
            self._check()
            self._do(step, prepared.conditions)
        if prepared.reads_stored:
            self._read_stored(prepared.limit)

    def collect(self, prepared: Prepared) -> pa.Table:
        """The program's rows, in memory."""
        self._compiled = prepared.compiled
        self._prepare(prepared)
        self._check()
        rows = self._evaluate(RESULT)
        if rows is None:
            with spark_faults():
                rows = self._sql(prepared.program.query).toArrow()
        return rows

    def _evaluate(self, name: str) -> pa.Table | None:
        """A step, or the program's query, from what is in memory; None if Spark is needed."""
        query = self._compiled.queries.get(name)
        if query is None:
            return None
        tables = {}
        for needed in query.reads:
            rows = self._in_memory(needed)
            if rows is None:
                return None
            tables[needed] = rows
        return execute(query.text, query.types, tables, limit=self._limit)

    def _in_memory(self, name: str) -> pa.Table | None:
        """A relation's rows, if they are in memory or few enough to be brought there."""
        self._bring(name)
        if name not in self._local and name not in self._frames:
            found = None
            if name in self._queries:
                found = self._evaluate(name)
            elif name.startswith(("new_", "old_")):
                whole = self._source_at(name)
                if whole.rows <= self._limit and whole.size <= self._runtime.settings.local_bytes:
                    self.rows += whole.rows
                    found = scan.to_arrow(self._runtime, whole)
            if found is not None:
                self._local[name] = found
        return self._local.get(name)

    def share(self, other: Run) -> None:
        """Have what another run of the same refresh has read of sources."""
        leaves = ("delta_", "new_", "old_")
        self._local |= {n: rows for n, rows in other._local.items() if n.startswith(leaves)}

    def give(self, name: str, rows: pa.Table) -> None:
        """Make rows known under a name."""
        self._local[name] = rows

    def give_frame(self, name: str, rows: DataFrame) -> None:
        """The same for rows that only Spark has."""
        self._frames[name] = rows

    def name(self, relation: str) -> str:
        """The name under which Spark knows a source."""
        return self._view(relation)

    def named(self, name: str, reader: exp.Query, stored: str) -> str:
        """The name of what readers see of a stored table."""
        tree = reader.copy()
        for table in tree.find_all(exp.Table):
            table.set("this", exp.to_identifier(stored))
        self._queries[name] = tree
        return self._view(name)

    def _do(self, step: Step, conditions: Mapping[str, exp.Expr | None]) -> None:
        if step.name in self._local or step.name in self._frames:
            return
        if isinstance(step, Fetch):
            self._fetch(step, conditions.get(step.name))
        elif isinstance(step, Keys):
            self._keys(step)
        else:
            self._queries[step.name] = step.query

    def _keys(self, step: Keys) -> None:
        if self._small:
            found = self._evaluate(step.name)
            if found is None:
                with spark_faults():
                    some = self._sql(step.query).limit(self._limit + 1).toArrow()
                found = some if some.num_rows <= self._limit else None
            if found is not None:
                self._local[step.name] = found
                return
        frame = self._sql(step.query).persist()
        self._persisted.append(frame)
        self._frames[step.name] = frame

    def _bring(self, name: str) -> None:
        """A small delta is worth having in memory."""
        if self._has_deltas and name.startswith("delta_") and name not in self._local:
            self._local[name] = self._sources.delta(self._source_of(name))

    def _fetch(self, step: Fetch, condition: exp.Expr | None) -> None:
        whole = self._end(step.source, step.state)
        table = whole.table.narrowed(sorted(step.fields))
        column = table.column(step.own)
        narrow = replace(whole, table=table)
        keys = self._local.get(step.keys)
        if keys is not None and can_hold(column.type, keys.column(step.key).type):
            wanted = Wanted(column, keys.column(step.key).combine_chunks())
            pruned = prune(narrow, wanted, self._stats(narrow, column.id))
            plain = pa.schema([(c.name, c.type) for c in table.columns])
            where = None if condition is None else arrow_condition(condition, plain)
            found = find_rows(self._runtime, pruned, wanted, limit=self._limit, where=where)
            self.rows += pruned.rows
            if found is not None:
                self._local[step.name] = found
                return
            narrow = pruned
        else:
            if keys is None:
                narrow = self._prune_by_bounds(step, narrow, column)
            self.rows += narrow.rows
        self._frames[step.name] = self._semi_join(narrow, step)

    def _prune_by_bounds(self, step: Fetch, narrow: Scan, column: Any) -> Scan:
        """By the least and greatest of keys that only Spark has."""
        from pyspark.sql import functions as F

        if not pa.types.is_integer(column.type) and not pa.types.is_date(column.type):
            return narrow
        keys = self._frames[step.keys]
        with spark_faults():
            found = keys.agg(
                F.min(step.key), F.max(step.key), F.count(F.when(F.col(step.key).isNull(), 1))
            ).collect()
        low, high, nulls = found[0]
        if type(low) is not (dt.date if pa.types.is_date(column.type) else int):
            return narrow
        if pa.types.is_integer(column.type):  # the keys may have a wider type
            most = np.iinfo(column.type.to_pandas_dtype())
            low, high = max(low, int(most.min)), min(high, int(most.max))
            if low > high:
                return narrow
        wanted = _Range(column, pa.array([low, high] + ([None] if nulls else []), column.type))
        return prune(narrow, wanted, self._stats(narrow, column.id))

    def _semi_join(self, narrow: Scan, step: Fetch) -> DataFrame:
        from pyspark.sql import functions as F

        rows = spark_scan.to_df(self._runtime, narrow)
        keys = self._as_frame(step.keys).select(F.col(step.key).alias("tailrace_key")).distinct()
        if step.keys in self._local:
            keys = F.broadcast(keys)
        same = F.col(f"`{step.own}`").eqNullSafe(F.col("tailrace_key"))
        return rows.join(keys, same, "left_semi")

    def _stats(self, narrow: Scan, column_id: int) -> Any:
        with self._runtime.database.read() as connection:
            return file_lookup.file_stats(connection, narrow.table, (column_id,), narrow.at)

    # --- the stored rows --------------------------------------------------------------------

    def _read_stored(self, limit: StoredLimit) -> None:
        if stored_delta.STORED in self._local or stored_delta.STORED in self._frames:
            return
        assert self._stored is not None
        whole = self._stored()
        own = {c.name: self._names[c.name] for c in whole.table.columns}
        names = {**own, FILE: stored_delta.FILE, POS: stored_delta.POS}
        found = self._find_stored(whole, limit)
        if found is not None:
            self._local[stored_delta.STORED] = found.rename_columns(
                [names[c] for c in found.column_names]
            )
            return
        frame = spark_scan.to_df(self._runtime, whole, places=True)
        if limit.keys is not None:
            from pyspark.sql import functions as F

            column, step, key = limit.keys
            keys = self._as_frame(step).select(F.col(key).alias("tailrace_key")).distinct()
            same = F.col(f"`{column}`").eqNullSafe(F.col("tailrace_key"))
            frame = frame.join(keys, same, "left_semi")
        self._frames[stored_delta.STORED] = frame.toDF(*(names[name] for name in frame.columns))

    def _find_stored(self, whole: Scan, limit: StoredLimit) -> pa.Table | None:
        """The stored rows in memory, if that is few enough."""
        small = scan.is_small(whole, self._runtime)
        if small and whole.rows <= _FEW_STORED:
            return scan.to_arrow_with_places(self._runtime, whole)
        for name, values in self._stored_values(limit):
            column = whole.table.column(name)
            if not can_hold(column.type, values.type):
                continue
            wanted = Wanted(column, values)
            pruned = prune(whole, wanted, self._stats(whole, column.id))
            rows = find_rows(self._runtime, pruned, wanted, limit=self._limit, places=True)
            if rows is not None:
                return rows
        return scan.to_arrow_with_places(self._runtime, whole) if small else None

    def _stored_values(self, limit: StoredLimit) -> Iterator[tuple[str, pa.Array]]:
        """Columns of the stored table, and all values of each that a touched row can have."""
        if limit.keys is not None and limit.keys[1] in self._local:
            column, step, key = limit.keys
            yield column, self._local[step].column(key).combine_chunks()
        for column, sources in limit.origins:
            values = self._values_of(sources)
            if values is not None:
                yield column, values

    def _values_of(self, sources: Sequence[tuple[str, str]]) -> pa.Array | None:
        """All values of columns of some relations, if those are in memory."""
        parts = []
        for relation, column in sources:
            self._bring(relation)
            rows = self._local.get(relation)
            if rows is None:
                return None
            parts.append(rows.column(column))
        chunks = [chunk for part in parts for chunk in part.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], parts[0].type)

    # --- names in Spark ---------------------------------------------------------------------

    def _sql(self, query: exp.Query) -> DataFrame:
        tree = query.copy()
        for table in tree.find_all(exp.Table):
            table.set("this", exp.to_identifier(self._view(table.name)))
        return self.session.sql(tree.sql("spark"))

    def _view(self, name: str) -> str:
        """The name under which Spark knows a relation."""
        full = f"{self._prefix}{name}"
        if name not in self._views:
            self._as_frame(name).createOrReplaceTempView(full)
            self._views.add(name)
        return full

    def _as_frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._bring(name)
            if name in self._local:
                # In one partition: what follows then needs no exchange, and is one task.
                frame = spark_scan.local_frame(self._runtime, self._local[name]).coalesce(1)
            elif name in self._queries:
                frame = self._sql(self._queries[name])
            else:
                frame = self._leaf(name)
            self._frames[name] = frame
        return self._frames[name]

    def _leaf(self, name: str) -> DataFrame:
        if name.startswith("delta_"):
            return self._sources.delta_frame(self._source_of(name))
        found = self._source_at(name)
        self.rows += found.rows
        return spark_scan.to_df(self._runtime, found)

    def _source_at(self, name: str) -> Scan:
        state = State.NEW if name.startswith("new_") else State.OLD
        return self._end(self._source_of(name), state)

    def _source_of(self, name: str) -> str:
        """The source that a relation is about."""
        return self._numbered[int(name.partition("_")[2])]

    def _end(self, source: str, state: State) -> Scan:
        return self._sources.end(source, state, wide=self._wide and state is State.NEW)

    def close(self) -> None:
        """Let go of what Spark holds."""
        # Frames first: a Connect server looks up the names in them once more.
        for frame in self._persisted:
            frame.unpersist()
        for name in self._views:  # none, if Spark was not asked
            self.session.catalog.dropTempView(f"{self._prefix}{name}")


class _SessionOf(SparkProvider):
    """Gives a run's session."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def __call__(self) -> SparkSession:
        return self._run.session


class _Range(Wanted):
    """Anything between two values."""

    def may_be_in(self, bounds: Any, nulls: int | None) -> bool:
        if self.has_null and nulls != 0:
            return True
        limits = self._limits
        return (
            bounds is None
            or limits is None
            or bool(limits[0] <= bounds[1] and bounds[0] <= limits[1])
        )
