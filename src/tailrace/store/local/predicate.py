"""The rows of a table that a condition is true of, found in this process.

Always true: what is found is what Spark would find; None where that is not certain, or where the
work is worth a Spark job. A row group is held at a time, with the columns that the condition names.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from tailrace.store.deletes import NOTHING, Positions
from tailrace.store.local.engine import execute
from tailrace.store.local.expressions import typed
from tailrace.store.local.kinds import BIGINT, DiffersError, duck_type
from tailrace.store.local.typed import Typed, condition
from tailrace.store.parallel import each
from tailrace.store.pieces import piece_without, read
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import POS, Column, TableInfo

_ROWS = "rows"
Found = dict[int, Positions]


def matching_here(runtime: Runtime, scan: Scan, predicate: str) -> Found | None:
    """The places of a scan's rows for which a predicate is true; None: ask Spark."""
    if scan.rows > runtime.settings.memory_rows:
        return None
    try:
        sql, columns = _said(predicate, scan.table)
    except (DiffersError, sqlglot.errors.SqlglotError, RecursionError):
        return None
    names = [_label(column) for column in columns]

    def find(live: LiveFile) -> Positions | None:
        dead = live.dead(runtime, scan.at) if live.has_deletes else NOTHING.positions
        every = [NOTHING.positions]
        for positions, rows in read(runtime.storage, piece_without(live.file, dead), columns):
            held = pa.table([*rows.columns, pa.array(positions)], names=[*names, POS])
            found = execute(sql, {POS: BIGINT}, {_ROWS: held}, limit=held.num_rows)
            if found is None:
                return None
            every.append(np.sort(found.column(POS).to_numpy()))
        return np.concatenate(every)

    found: Found = {}
    for live, places in zip(scan.files, each(find, scan.files), strict=True):
        if places is None:
            return None
        if len(places):
            found[live.file.key] = places
    return found


def _said(predicate: str, table: TableInfo) -> tuple[str, list[Column]]:
    """The condition as a query for the places of rows, and the columns that it needs."""
    used: dict[int, Column] = {}

    def column(tree: exp.Column) -> Typed:
        named = [c for c in table.columns if c.name.casefold() == tree.name.casefold()]
        if len(named) != 1 or tree.table or isinstance(tree.this, exp.Star):
            raise DiffersError(f"{len(named)} columns called {tree.sql('spark')}")
        duck_type(named[0].type)
        used[named[0].id] = named[0]
        return Typed(_name(_label(named[0])), named[0].type)

    tree = sqlglot.parse_one(predicate, dialect="spark")
    if tree.find(exp.Query, exp.AggFunc, exp.Window):
        raise DiffersError("a condition about more than one row")
    where = condition(typed(tree, column))
    if not used:
        raise DiffersError("a condition about no column")
    query = exp.select(_name(POS)).from_(_ROWS).where(where, copy=False)
    return query.sql("duckdb"), list(used.values())


def _name(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _label(column: Column) -> str:
    """What a column is called where it is asked about: a name may be anything."""
    return f"c{column.id}"
