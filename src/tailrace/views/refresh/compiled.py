"""Programs whose steps are said to DuckDB before anything is read.

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
from tailrace.views.incremental.program import WEIGHT, Fetch, Keys, Program
from tailrace.views.query.parse import TOO_DEEP
from tailrace.views.refresh.duckdb_queries import Local, local_query

# With less left out before it, one of these may give less, or something else.
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


@dataclass(kw_only=True)
class Compiled:
    """What can be answered in this process of a program."""

    queries: dict[str, Local] = field(default_factory=dict)  # by the step's name
    reason: str = ""  # why Spark is needed; empty if it is not


def compiled(program: Program, leaves: Mapping[str, ColumnTypes]) -> Compiled:
    """Translate each step of a program to DuckDB. `leaves`: what it reads."""
    made, known = Compiled(), dict(leaves)
    for step in program.steps:
        if isinstance(step, Fetch):
            source = known[f"{step.state}_{program.numbers[step.source]}"]
            known[step.name] = {name: source[name] for name in sorted(step.fields)}
            continue
        found = _said(made, step.name, step.query, known)
        if found is None and isinstance(step, Keys):
            more = without_conditions(step.query)
            found = None if more is None else _said(made, step.name, more, known)
        if found is not None:
            known[step.name] = found.kinds
    _said(made, RESULT, program.query, known)
    return made


def _said(
    made: Compiled, name: str, query: exp.Query, known: Mapping[str, ColumnTypes]
) -> Local | None:
    try:
        found = local_query(query, known)
    except DiffersError as error:
        made.reason = made.reason or str(error)
        return None
    except RecursionError:
        made.reason = made.reason or TOO_DEEP
        return None
    made.queries[name] = found
    return found


def leaves_of(
    sources: Mapping[int, Iterable[Column]], stored: Iterable[tuple[str, pa.DataType]]
) -> dict[str, ColumnTypes]:
    """What programs read: each source at both ends and its change, and the stored rows."""
    found: dict[str, ColumnTypes] = {
        stored_delta.STORED: {**dict(stored), stored_delta.FILE: BIGINT, stored_delta.POS: BIGINT}
    }
    for number, columns in sources.items():
        plain = {column.name: column.type for column in columns}
        found[f"new_{number}"] = found[f"old_{number}"] = plain
        found[f"delta_{number}"] = {**plain, WEIGHT: INT}
    return found


def without_conditions(query: exp.Query) -> exp.Query | None:
    """A query for at least the same keys, if leaving out its conditions can only add some."""
    if not query.find(exp.Where) or query.find(*_NOT_MONOTONE):
        return None
    made = query.copy()
    for where in list(made.find_all(exp.Where)):
        where.pop()
    return made
