"""Which rows match a predicate that a user wrote in Spark SQL.

Files that cannot hold a match are left out first, by comparing their statistics with the
conditions `column <op> literal` that every match must satisfy. The rest is answered in this process
where that is certain to mean what Spark means, and the rows are not too many; else by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.store import local_predicate as local
from tailrace.store import stats
from tailrace.store.files import ColumnStats
from tailrace.store.keys import Places, collect_places
from tailrace.store.runtime import Runtime
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import RESERVED, Column, TableInfo
from tailrace.store.spark_faults import is_sparks
from tailrace.store.spark_scan import to_df
from tailrace.store.spark_text import check_condition, check_settings

Stats = Mapping[int, Mapping[int, ColumnStats]]

# What a file's bounds must satisfy, if a row in it is to satisfy `column <op> value`.
_POSSIBLE: dict[type[exp.Binary], Callable[[Any, Any, Any], bool]] = {
    exp.EQ: lambda low, high, value: bool(low <= value <= high),
    exp.LT: lambda low, _, value: bool(low < value),
    exp.LTE: lambda low, _, value: bool(low <= value),
    exp.GT: lambda _, high, value: bool(high > value),
    exp.GTE: lambda _, high, value: bool(high >= value),
}
_MIRROR = {exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}

Condition = tuple[Column, type[exp.Binary], Any]


def matching(
    runtime: Runtime, scan: Scan, predicate: str, read_stats: Callable[[Iterable[int]], Stats]
) -> Places:
    """The places of a scan's rows for which a predicate is true."""
    predicate = check_condition(runtime.spark, predicate, of=scan.table.full_name)
    conditions = list(necessary_conditions(predicate, scan.table))
    translated = local.translate_condition(predicate, scan.table)
    asked = {column.id for column, _, _ in conditions}
    asked |= {column.id for column in translated.columns} if translated is not None else set()
    known = read_stats(asked) if asked else {}
    files = tuple(live for live in scan.files if _may_match(live, conditions, known))
    pruned = Scan(table=scan.table, at=scan.at, files=files)
    if translated is not None and _is_small(runtime, pruned, translated, known):
        here = local.find(runtime, pruned, translated)
        if here is not None:
            return here
    return _with_spark(runtime, pruned, predicate)


def _is_small(
    runtime: Runtime, scan: Scan, translated: local.TranslatedCondition, known: Stats
) -> bool:
    """Whether this process may read the columns that a condition needs."""
    limits = runtime.settings
    own = [_stats(live, known) for live in scan.files]
    size = sum(s[c.id].size for s in own for c in translated.columns if c.id in s)
    return scan.rows <= limits.memory_rows and size <= limits.local_bytes


def _with_spark(runtime: Runtime, scan: Scan, predicate: str) -> Places:
    from pyspark.sql import functions as F

    check_settings(runtime.spark(), predicate)
    rows = to_df(runtime, scan, places=True)
    try:
        return collect_places(rows.where(F.expr(predicate)), scan.files)
    except Exception as error:
        if not is_sparks(error):
            raise
        reason = str(error).strip().splitlines()[0]
        raise InvalidError(f"{scan.table.full_name}: cannot use {predicate!r}: {reason}") from error


def necessary_conditions(predicate: str, table: TableInfo) -> Iterator[Condition]:
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
        kind = type(part)
        if isinstance(part, exp.Binary) and kind in _POSSIBLE:
            found = _condition(part.left, kind, part.right, table)
            found = found or _condition(part.right, _MIRROR[kind], part.left, table)
            if found:
                yield found


def _condition(
    side: exp.Expr, kind: type[exp.Binary], other: exp.Expr, table: TableInfo
) -> Condition | None:
    if not isinstance(side, exp.Column) or side.table:
        return None
    try:
        column = table.column(side.name)
    except NotFoundError:
        return None
    value = _literal(other, column.type)
    return None if value is None else (column, kind, value)


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


def _stats(live: LiveFile, known: Stats) -> Mapping[int, ColumnStats]:
    """What is known of a file's columns: of one that is not committed, it says so itself."""
    if live.file.id < 0:
        return {stats.column_id: stats for stats in live.file.stats}
    return known.get(live.file.id, {})


def _may_match(live: LiveFile, conditions: list[Condition], known: Stats) -> bool:
    found = _stats(live, known)
    for column, kind, value in conditions:
        bounds = stats.of_text(column.type, found.get(column.id))
        if bounds is not None and not _POSSIBLE[kind](*bounds, value):
            return False
    return True
