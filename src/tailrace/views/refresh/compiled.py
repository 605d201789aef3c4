"""Programs whose steps are said to DuckDB before anything is read.

So it is known at once whether a refresh needs Spark, and why: the chooser asks, and `explain`
tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql.duckdb.engine import Kinds
from tailrace.spark_sql.duckdb.kinds import BIGINT, INT, DiffersError
from tailrace.store.schema import Column
from tailrace.views.definition import TOO_DEEP, Definition
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import WEIGHT, Builder, Fetch, Keys, Program
from tailrace.views.query.trees import kept
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


def compiled(program: Program, leaves: Mapping[str, Kinds]) -> Compiled:
    """Say each step of a program to DuckDB. `leaves`: what it reads."""
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


def _said(made: Compiled, name: str, query: exp.Query, known: Mapping[str, Kinds]) -> Local | None:
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
) -> dict[str, Kinds]:
    """What programs read: each source at both ends and its change, and the stored rows."""
    found: dict[str, Kinds] = {
        stored_delta.STORED: {**dict(stored), stored_delta.FILE: BIGINT, stored_delta.POS: BIGINT}
    }
    for number, columns in sources.items():
        plain = {column.name: column.type for column in columns}
        found[f"new_{number}"] = found[f"old_{number}"] = plain
        found[f"delta_{number}"] = {**plain, WEIGHT: INT}
    return found


def reason_for_spark(
    made: Definition,
    changed: Iterable[str],
    stored: Mapping[str, pa.DataType] | None,
    types: Mapping[str, pa.DataType],
) -> str:
    """Why changes in memory need Spark all the same; empty if they do not.

    `stored`: the stored table's columns, None if the view has not been built; `types`: Spark's
    types of averages.
    """
    with kept():
        return _reason_for_spark(made, changed, stored, types)


def _reason_for_spark(
    made: Definition,
    changed: Iterable[str],
    stored: Mapping[str, pa.DataType] | None,
    types: stored_delta.Types,
) -> str:
    layout = made.layout
    inputs = {given.name: given.table for given in made.inputs.values()}
    if layout is None or None in inputs.values():
        return ""
    keys = {name: [c.name for c in t.key_columns] for name, t in inputs.items() if t and t.key}
    b = Builder(list(inputs), changed, keys=keys)
    names = {column.name: column.column for column in layout.columns}
    held = {names[name]: kind for name, kind in (stored or {}).items()}
    if stored is not None:
        query = stored_delta.change(b, layout, {**types, **held})
    else:
        query = b.delta(layout.root if layout.groups is None else layout.groups.input)
    if query is None:
        return ""
    columns = {n: table.columns for n, table in enumerate(inputs.values()) if table is not None}
    return compiled(b.program(query), leaves_of(columns, held.items())).reason


def without_conditions(query: exp.Query) -> exp.Query | None:
    """A query for at least the same keys, if leaving out its conditions can only add some."""
    if not query.find(exp.Where) or query.find(*_NOT_MONOTONE):
        return None
    made = query.copy()
    for where in list(made.find_all(exp.Where)):
        where.pop()
    return made
