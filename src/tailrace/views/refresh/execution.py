"""Runs programs.

Each step runs in this process if possible (`in_memory`), else on Spark (`on_spark`). Small results
stay in memory: keys that follow from changes there, and the rows found by these keys. The query
over them is answered here where that gives the same as Spark, and else is one action of Spark; what
is large is left to Spark as one query. Either way the steps mean the same (see `program`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import FILE, POS
from tailrace.store.spark_faults import spark_faults
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import Fetch, Keys, Relation, Step
from tailrace.views.refresh.compiled import RESULT
from tailrace.views.refresh.in_memory import InMemory
from tailrace.views.refresh.needed_rows import StoredLimit
from tailrace.views.refresh.on_spark import OnSpark
from tailrace.views.refresh.programs import Prepared

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
