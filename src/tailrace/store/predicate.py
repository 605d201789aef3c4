"""Which rows match a predicate that a user wrote in Spark SQL.

Files that cannot hold a match are left out first, by comparing their statistics with the
conditions `column <op> literal` that every match must satisfy. The rest is answered in this process
where that is certain to mean what Spark means, and the rows are not too many (`find`); else by
Spark. Each thread holds a row group at a time, with the columns that the condition names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql.duckdb.engine import execute
from tailrace.spark_sql.duckdb.expressions import translate
from tailrace.spark_sql.duckdb.translated import Translated, condition
from tailrace.spark_sql.duckdb.type_rules import BIGINT, DiffersError, duck_type
from tailrace.store.files import NONE, Positions, PositionsByFile
from tailrace.store.find_rows import collect_positions
from tailrace.store.reader import read
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget, Cost, LiveFile, Scan, each
from tailrace.store.schema import POS, RESERVED, Column, TableInfo
from tailrace.store.spark_actions import is_sparks
from tailrace.store.spark_scan import to_df
from tailrace.store.spark_text import check_condition, check_settings
from tailrace.store.stats import Comparison, Comparisons, FileStats, Filter, size_of

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRROR = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def matching(
    runtime: Runtime, scan: Scan, predicate: str, read_stats: Callable[[Iterable[int]], FileStats]
) -> PositionsByFile:
    """The places of a scan's rows for which a predicate is true."""
    predicate = check_condition(runtime.spark, predicate, of=scan.table.full_name)
    needed = Comparisons.of(necessary_conditions(predicate, scan.table))
    translated = translate_condition(predicate, scan.table)
    asked = needed.columns
    asked |= {column.id for column in translated.columns} if translated is not None else set()
    known = read_stats(asked) if asked else {}
    pruned = scan.pruned(needed, known)
    if translated is not None:
        size = sum(size_of(live.file, translated.columns, known) for live in pruned.files)
        budget = Budget.of(runtime.settings).for_rows(runtime.settings.memory_rows)
        if budget.covers(Cost(rows=pruned.rows, size=size)):
            here = find(runtime, pruned, translated, needed)
            if here is not None:
                return here
    return _with_spark(runtime, pruned, predicate)


def _with_spark(runtime: Runtime, scan: Scan, predicate: str) -> PositionsByFile:
    from pyspark.sql import functions as F

    check_settings(runtime.spark(), predicate)
    rows = to_df(runtime, scan, places=True)
    try:
        return collect_positions(rows.where(F.expr(predicate)), scan.files)
    except Exception as error:
        if not is_sparks(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise InvalidError(f"{scan.table.full_name}: cannot use {predicate!r}: {reason}") from error


def necessary_conditions(predicate: str, table: TableInfo) -> Iterator[Comparison]:
    """Comparisons of a column with a literal that hold for every row that matches."""
    try:
        tree = spark_sql.parse_one(predicate)
    except SqlglotError:
        return  # Spark will say what is wrong with it, or knows better
    for name in tree.find_all(exp.Column):
        if name.name.casefold() in RESERVED:
            raise InvalidError(
                f"{table.full_name}: cannot use {predicate!r}: {name.name} is not of the table"
            )
    for piece in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        part = piece.unnest()
        operator = _OPERATORS.get(type(part))
        if isinstance(part, exp.Binary) and operator is not None:
            found = _comparison(part.left, operator, part.right, table)
            found = found or _comparison(part.right, _MIRROR[operator], part.left, table)
            if found:
                yield found


def _comparison(
    side: exp.Expr, operator: str, other: exp.Expr, table: TableInfo
) -> Comparison | None:
    if not isinstance(side, exp.Column) or side.table:
        return None
    try:
        column = table.column(side.name)
    except NotFoundError:
        return None
    value = _literal(other, column.type)
    if value is None:
        return None
    return Comparison(column=column, operator=operator, least=value, most=value)


def _literal(tree: exp.Expr, kind: pa.DataType) -> Any:
    """A literal as a value that compares with the column's bounds, where that is beyond doubt."""
    negative = isinstance(tree, exp.Neg)
    literal = tree.this if negative else tree
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        return literal.this if pa.types.is_string(kind) and not negative else None
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return None
    if "e" in literal.this.lower():
        return None  # a double: Spark rounds the column's values before it compares
    try:
        number = Decimal(literal.this)
    except InvalidOperation:
        return None
    return -number if negative else number


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
    given_up = Event()

    def find_in(live: LiveFile) -> Positions:
        every = [NONE]
        visible = live.visible(runtime, scan.at)
        for positions, rows in read(runtime.storage, visible, where.columns, where=needed):
            if given_up.is_set():
                break
            places = _ask(where, rows.columns, positions)
            if places is None:
                given_up.set()
                break
            every.append(places)
        return np.concatenate(every)

    pairs = zip(scan.files, each(find_in, scan.files), strict=True)
    found = {live.file.key: places for live, places in pairs if len(places)}
    return None if given_up.is_set() else found


def rows_where(rows: pa.Table, where: TranslatedCondition) -> pa.Table | None:
    """The rows of a table for which a condition is true; None if Spark has to be asked."""
    columns = [rows.column(column.name) for column in where.columns]
    places = _ask(where, columns, np.arange(rows.num_rows))
    return None if places is None else rows.take(places)


def _ask(where: TranslatedCondition, columns: list[Any], positions: Positions) -> Positions | None:
    """The positions for which a condition is true, in order; `columns` are those it needs."""
    names = [_label(column) for column in where.columns]
    rows = pa.table([*columns, pa.array(positions)], names=[*names, POS])
    found = execute(where.sql, {POS: BIGINT}, {_ROWS: rows}, limit=rows.num_rows)
    return None if found is None else np.sort(found.column(POS).to_numpy())


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
