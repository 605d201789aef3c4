"""The rows of a table that a condition is true of, found in this process.

Always true: what is found is what Spark would find; conditions of which that is not certain are
left to Spark. Each thread holds a row group at a time, with the columns that the condition names.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.spark_sql.duckdb.engine import execute
from tailrace.spark_sql.duckdb.expressions import translate
from tailrace.spark_sql.duckdb.translated import Translated, condition
from tailrace.spark_sql.duckdb.type_rules import BIGINT, DiffersError, duck_type
from tailrace.store.parallel import each
from tailrace.store.positions import NONE, Positions
from tailrace.store.reader.batches import read
from tailrace.store.reader.filters import Filter
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import POS, Column, TableInfo

_ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class TranslatedCondition:
    """A condition as DuckDB is asked about it."""

    sql: str  # a query for the positions of rows
    columns: tuple[Column, ...]  # that it needs


def translate_condition(predicate: str, table: TableInfo) -> TranslatedCondition | None:
    """A condition with Spark's meaning; None if Spark has to be asked."""
    try:
        return _translate(predicate, table)
    except (DiffersError, sqlglot.errors.SqlglotError, RecursionError):
        return None


def find(
    runtime: Runtime, scan: Scan, where: TranslatedCondition, needed: Filter | None = None
) -> dict[int, Positions] | None:
    """The places of a scan's rows for which a condition is true; None if Spark has to be asked.

    `needed`: what statistics can say of it.
    """
    names = [_label(column) for column in where.columns]
    given_up = Event()

    def find_in(live: LiveFile) -> Positions:
        every = [NONE]
        visible = live.visible(runtime, scan.at)
        for positions, rows in read(runtime.storage, visible, where.columns, where=needed):
            if given_up.is_set():
                break
            held = pa.table([*rows.columns, pa.array(positions)], names=[*names, POS])
            found = execute(where.sql, {POS: BIGINT}, {_ROWS: held}, limit=held.num_rows)
            if found is None:
                given_up.set()
                break
            every.append(np.sort(found.column(POS).to_numpy()))
        return np.concatenate(every)

    pairs = zip(scan.files, each(find_in, scan.files), strict=True)
    found = {live.file.key: places for live, places in pairs if len(places)}
    return None if given_up.is_set() else found


def _translate(predicate: str, table: TableInfo) -> TranslatedCondition:
    used: dict[int, Column] = {}

    def column(tree: exp.Column) -> Translated:
        named = [c for c in table.columns if c.name.casefold() == tree.name.casefold()]
        if len(named) != 1 or tree.table:
            raise DiffersError(f"{len(named)} columns called {tree.sql('spark')}")
        duck_type(named[0].type)
        used[named[0].id] = named[0]
        return Translated(_name(_label(named[0])), named[0].type)

    tree = spark_sql.parse_one(predicate)
    if tree.find(exp.Query, exp.AggFunc, exp.Window):
        raise DiffersError("a condition about more than one row")
    where = condition(translate(tree, column))
    if not used:
        raise DiffersError("a condition about no column")
    query = exp.select(_name(POS)).from_(_ROWS).where(where, copy=False)
    return TranslatedCondition(sql=query.sql("duckdb"), columns=tuple(used.values()))


def _name(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _label(column: Column) -> str:
    """What a column is called where it is asked about: a name may be anything."""
    return f"c{column.id}"
