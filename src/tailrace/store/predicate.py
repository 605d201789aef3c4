"""Which rows match a predicate that a user wrote in Spark SQL.

Files that cannot hold a match are left out first, by comparing their statistics with the
conditions `column <op> literal` that every match must satisfy. The rest is answered in this process
where that is certain to mean what Spark means, and the rows are not too many; else by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.store import local_predicate as local
from tailrace.store.keys import collect_positions
from tailrace.store.positions import PositionsByFile
from tailrace.store.reader.budget import Budget, Cost
from tailrace.store.reader.filters import Comparison, Comparisons, FileStats, size_of
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import RESERVED, TableInfo
from tailrace.store.spark_faults import is_sparks
from tailrace.store.spark_scan import to_df
from tailrace.store.spark_text import check_condition, check_settings

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
    translated = local.translate_condition(predicate, scan.table)
    asked = needed.columns
    asked |= {column.id for column in translated.columns} if translated is not None else set()
    known = read_stats(asked) if asked else {}
    pruned = scan.pruned(needed, known)
    if translated is not None:
        size = sum(size_of(live.file, translated.columns, known) for live in pruned.files)
        budget = Budget.of(runtime.settings).for_rows(runtime.settings.memory_rows)
        if budget.covers(Cost(rows=pruned.rows, size=size)):
            here = local.find(runtime, pruned, translated, needed)
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
