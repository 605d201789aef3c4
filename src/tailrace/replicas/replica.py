"""The consumer `replica`: a copy of a table with a primary key.

    {"consumer": {"kind": "replica", "table": "sales.orders_eu",
                  "columns": ["id", "amount"], "where": "region = 'eu'"}}

Always true: the copy at watermark S holds the source's rows at S for which `where` is true, in
the chosen columns. Columns follow the source by their id, so that renaming one there is fine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.errors import InvalidError
from tailrace.propagation.changes import Changes, SourceChanges
from tailrace.propagation.consumer import Consumer, JobContext
from tailrace.propagation.job import RunKind
from tailrace.spark_sql.functions import nondeterministic_calls
from tailrace.spark_sql.types import quote, spark_type
from tailrace.store.changes import DELETE, INSERT
from tailrace.store.predicate import rows_where, translate_condition
from tailrace.store.schema import TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_text import check_condition, check_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tailrace.store.table import Table
    from tailrace.store.transaction import Transaction

_OPTIONS = {"kind", "table", "columns", "where"}


class Replica(Consumer):
    """The consumer."""

    shares_commits = True

    def prepare(
        self, txn: Transaction, options: Mapping[str, Any], sources: Sequence[TableInfo]
    ) -> list[str]:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidError(f"a replica has no option {unknown[0]!r}: table, columns, where")
        if len(sources) != 1:
            raise InvalidError("a replica follows one table")
        source, target = sources[0], options.get("table")
        if not isinstance(target, str):
            raise InvalidError('a replica needs the name of its table: {"table": "sales.copy"}')
        if not source.key:
            raise InvalidError(f"{source.full_name} has no primary key: a replica needs one")
        chosen = self._chosen(options, source)
        _condition(options, source)
        if options.get("where") is not None:
            check_condition(txn.runtime.spark, options["where"], of=source.full_name)
        columns = {c.name: spark_type(c.type) + ("" if c.nullable else " not null") for c in chosen}
        txn.create_table(target, columns, primary_key=[c.name for c in source.key_columns])
        return [target]

    def check_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        if old != new:
            raise InvalidError(
                "what a replica holds cannot be changed: unregister it and register another"
            )

    def _chosen(self, options: Mapping[str, Any], source: TableInfo) -> list[Any]:
        wanted = options.get("columns")
        if wanted is None:
            return list(source.columns)
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            raise InvalidError('a replica\'s columns are a list of names: {"columns": ["id"]}')
        return list(source.narrowed(wanted).columns)

    def columns(
        self, options: Mapping[str, Any], memory: Mapping[str, Any], source: TableInfo
    ) -> list[str] | None:
        needed = _condition(options, source)
        if options.get("columns") is None:
            return None
        known = memory.get("columns")
        if known is None:
            return [*options["columns"], *needed]
        return [c.name for c in source.columns if str(c.id) in known or c.name in needed]

    def run(self, changes: Changes, txn: Transaction, job: JobContext) -> str | None:
        (source,) = changes.values()
        copy = txn.table(job.options["table"])
        names = self._names(source, job, copy.columns)
        _widen(copy, source.info, names)
        _check_condition(job, source.info)
        key = {c.name: names[c.name] for c in source.info.key_columns}
        where = job.options.get("where")
        if where is not None:
            where = check_condition(txn.runtime.spark, where, of=source.info.full_name)
        if job.rebuilds:
            copy.delete("true")  # the changes since then are gone
        # Deletes first: a row that was updated is in both.
        if source.is_small:
            gone, new = source.arrow(DELETE), source.arrow(INSERT)
            if where is not None and new.num_rows:
                new = _rows_where(txn, source, new, where)
            if gone.num_rows:
                copy.delete(gone.select(list(key)).rename_columns(list(key.values())))
            if new.num_rows:
                copy.append(new.select(list(names)).rename_columns(list(names.values())))
            return "arrow"
        inserts = source.inserts
        if where is not None:
            check_settings(txn.runtime.spark(), where)
            inserts = inserts.where(where)
        if changes.kind is RunKind.TAIL:
            copy.delete(_renamed(source.deletes, key))
        copy.append(_renamed(inserts, names))
        return "spark"

    def _names(
        self, source: SourceChanges, job: JobContext, columns: Mapping[str, str]
    ) -> dict[str, str]:
        """The copy's column for each of the source's that it has."""
        known = job.memory.get("columns")
        if known is None:  # the first run: by the names that the copy was created with
            by_name = {c.name.casefold(): c for c in source.info.columns}
            _check_none([name for name in columns if name.casefold() not in by_name], source.info)
            known = {str(by_name[name.casefold()].id): name for name in columns}
            job.memory["columns"] = known
        now = {str(c.id): c.name for c in source.info.columns}
        _check_none([name for number, name in known.items() if number not in now], source.info)
        return {now[number]: name for number, name in known.items()}


def _rows_where(txn: Transaction, source: SourceChanges, new: pa.Table, where: str) -> pa.Table:
    """The new rows for which the condition is true: found here, or by Spark where it may differ."""
    condition = translate_condition(where, source.info)
    kept = None if condition is None else rows_where(new, condition)
    if kept is not None:
        return kept
    check_settings(txn.runtime.spark(), where)
    with spark_faults():
        return source.inserts.where(where).toArrow().cast(new.schema)


def _check_none(lost: Sequence[str], source: TableInfo) -> None:
    """Refuse to go on without some columns."""
    if lost:
        raise InvalidError(
            f"{source.full_name} no longer has the column {lost[0]!r}: "
            "unregister the replica and register it again"
        )


def _widen(copy: Table, source: TableInfo, names: Mapping[str, str]) -> None:
    """Widen columns that were widened in the source, before the first larger value comes."""
    have = copy.info
    for column in source.columns:
        if column.name in names and have.column(names[column.name]).type != column.type:
            copy.widen_column(names[column.name], spark_type(column.type))


def _check_condition(job: JobContext, source: TableInfo) -> None:
    """Refuse a condition whose names no longer mean the columns that they meant at first."""
    now = {name: source.column(name).id for name in _condition(job.options, source)}
    if job.memory.setdefault("where", now) != now:
        raise InvalidError(
            f"a column of {source.full_name} that the replica's condition names is another one "
            "now: unregister the replica and register it again"
        )


def _renamed(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select(*(F.col(quote(old)).alias(new) for old, new in names.items()))


def _condition(options: Mapping[str, Any], source: TableInfo) -> set[str]:
    """The columns that the condition reads."""
    where = options.get("where")
    if where is None:
        return set()
    if not isinstance(where, str):
        raise InvalidError('a replica\'s where is a condition in Spark SQL: "amount > 0"')
    try:
        parsed = spark_sql.parse(where)
    except sqlglot.errors.SqlglotError as error:
        errors = getattr(error, "errors", None) or [{"description": "it is no expression"}]
        reason = errors[0]["description"]
        raise InvalidError(f"cannot read the condition {where!r}: {reason}") from error
    tree = parsed[0] if len(parsed) == 1 else None
    if tree is None:
        raise InvalidError(f"cannot read the condition {where!r}: it is not one expression")
    if tree.find(exp.Subquery, exp.Select, exp.AggFunc, exp.Window, exp.Explode):
        raise InvalidError(f"the condition {where!r} must be about one row")
    for name in nondeterministic_calls(tree):
        raise InvalidError(f"the condition {where!r} does not always say the same of a row: {name}")
    if isinstance(tree, exp.Literal | exp.Null):
        raise InvalidError(f"{where!r} is no condition: write a comparison, as in 'amount > 0'")
    return {source.column(column.name).name for column in tree.find_all(exp.Column)}
