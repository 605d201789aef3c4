"""Programs whose steps are translated to DuckDB before anything is read.

So it is known at once whether a refresh needs Spark, and why: the planner asks, and `explain`
tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb.engine import ColumnTypes
from tailrace.spark_sql.duckdb.type_rules import BIGINT, INT, DiffersError
from tailrace.store.schema import Column
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import WEIGHT, Fetch, Keys, Program, leaves_of
from tailrace.views.query.parse import TOO_DEEP
from tailrace.views.query.trees import names_in
from tailrace.views.refresh.duckdb_queries import local_query

# With fewer rows left out before it, one of these may give fewer or other rows.
_NOT_MONOTONE = (
    exp.Join,
    exp.Group,
    exp.AggFunc,
    exp.Anonymous,
    exp.Window,
    exp.Limit,
    exp.Except,
    exp.Intersect,
)
# The name of a program's own query, beside those of its steps.
RESULT = ""


@dataclass(frozen=True, kw_only=True)
class LocalQuery:
    """A query of DuckDB."""

    text: str
    types: ColumnTypes  # of its columns, in Spark
    reads: tuple[str, ...]  # names of relations


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The queries of a program that can be answered in this process."""

    queries: Mapping[str, LocalQuery] = field(default_factory=dict)  # by the step's name
    reason: str = ""  # why Spark is needed; empty if it is not


def compiled(program: Program, leaves: Mapping[str, ColumnTypes]) -> Compiled:
    """Translate each step of a program to DuckDB; `leaves` are the relations that it reads."""
    compiler = _Compiler(leaves)
    for step in program.steps:
        if isinstance(step, Fetch):
            source = compiler.known[program.leaf(step.source, step.end).name]
            compiler.known[step.name] = {name: source[name] for name in sorted(step.fields)}
        elif not compiler.add(step.name, step.query) and isinstance(step, Keys):
            more = without_conditions(step.query)
            if more is not None:
                compiler.add(step.name, more)
    compiler.add(RESULT, program.query)
    return Compiled(queries=compiler.queries, reason=compiler.reason)


class _Compiler:
    """Translates queries one after the other, each over those before it."""

    def __init__(self, known: Mapping[str, ColumnTypes]) -> None:
        self.known = dict(known)
        self.queries: dict[str, LocalQuery] = {}
        self.reason = ""  # of the first that could not be translated

    def add(self, name: str, query: exp.Query) -> bool:
        try:
            local = local_query(query, self.known)
            reads = tuple(sorted(names_in(local.query)))  # before `local.sql`, which consumes it
            self.queries[name] = LocalQuery(text=local.sql, types=local.kinds, reads=reads)
        except DiffersError as error:
            self.reason = self.reason or str(error)
            return False
        except RecursionError:
            self.reason = self.reason or TOO_DEEP
            return False
        self.known[name] = local.kinds
        return True


def types_of_leaves(
    sources: Mapping[str, Iterable[Column]], stored: Mapping[str, pa.DataType]
) -> dict[str, ColumnTypes]:
    """The types of what programs read: sources at both ends, their changes, the stored rows."""
    leaf_types: dict[str, ColumnTypes] = {
        stored_delta.STORED: {**stored, stored_delta.FILE: BIGINT, stored_delta.POS: BIGINT}
    }
    for leaf in leaves_of(sources).values():
        plain = {column.name: column.type for column in sources[leaf.source]}
        leaf_types[leaf.name] = plain if leaf.end is not None else {**plain, WEIGHT: INT}
    return leaf_types


def without_conditions(query: exp.Query) -> exp.Query | None:
    """A query for the same keys and more, if dropping its conditions can only add some."""
    if not query.find(exp.Where) or query.find(*_NOT_MONOTONE):
        return None
    wider = query.copy()
    for where in list(wider.find_all(exp.Where)):
        where.pop()
    return wider
