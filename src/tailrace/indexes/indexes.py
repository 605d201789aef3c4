"""The indexes of a lake: making, finding and dropping them, and searching two at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.catalog import tables as t
from tailrace.errors import InvalidError, NotFoundError
from tailrace.fixes import Action, Fix
from tailrace.indexes.definition import FULLTEXT, KINDS, VECTOR, Definition, define
from tailrace.indexes.fusion import rank_fusion
from tailrace.indexes.index import (
    MOST,
    Context,
    Found,
    Index,
    check_freshness,
    check_limit,
)
from tailrace.indexes.rows import read_rows
from tailrace.propagation import joblog
from tailrace.propagation.jobs import home_of
from tailrace.spark_sql.types import quote
from tailrace.store import rows as row_checks
from tailrace.store import scan as local_scan
from tailrace.store.schema import TableInfo, fold
from tailrace.store.spark_faults import spark_faults
from tailrace.store.spark_scan import to_df

if TYPE_CHECKING:
    from tailrace.store.scan import Scan
    from tailrace.store.transaction import Transaction

Trigger = str | Mapping[str, Any] | None
# Rows of each index that are put together to one list.
_CANDIDATES = 4
_AT_LEAST = 50


class Indexes:
    """What `lake.create_index` and its siblings stand for."""

    def __init__(self, context: Context) -> None:
        self._context, self._runtime = context, context.runtime

    # --- making and dropping ----------------------------------------------------------------

    def create(
        self,
        table: str,
        name: str,
        using: str,
        columns: Sequence[str] | str,
        options: Mapping[str, Any] | None,
        *,
        trigger: Trigger,
        priority: int,
    ) -> Index:
        with self._context.begin() as txn:
            self.add(txn, table, name, using, columns, options, trigger=trigger, priority=priority)
        return self.get(table, name)

    def add(
        self,
        txn: Transaction,
        table: str,
        name: str,
        using: str,
        columns: Sequence[str] | str,
        options: Mapping[str, Any] | None,
        *,
        trigger: Trigger,
        priority: int,
    ) -> None:
        """Create an index with the commit of a transaction, which may create the table, too."""
        _check_installed(using)
        if "." in name or "`" in name:
            raise InvalidError(f"the name of an index has no dots or backticks: {name!r}")
        info = txn.info(table)
        made = define(info, using, columns, options)
        if made.kind == VECTOR:
            made = self._checked(txn, info, made)
        spec: dict[str, Any] = {"consumer": made.to_options(), "priority": priority}
        if trigger is not None:
            spec["trigger"] = {"job_type": trigger} if isinstance(trigger, str) else trigger
        if not self._context.jobs.register(table, name, spec, txn=txn):
            raise InvalidError(f"{table} has a job or an index {name!r} already")

    def _checked(self, txn: Transaction, info: TableInfo, made: Definition) -> Definition:
        """A vector index with its dimension, which all rows that are there have."""
        (column,) = made.columns_of(info)
        scan = txn.scan(info.schema, info.name)
        dimension = made.dimension or self._first_dimension(scan, column.name)
        if not dimension:
            raise InvalidError(
                f"{info.full_name}.{column.name} holds no vector yet",
                fix=Fix(Action.GIVE_DIMENSION),
            )
        if column.dimension is None:
            wrong = self._wrong(scan, info, column.name, dimension)
            if wrong:
                raise InvalidError(
                    f"{info.full_name}.{column.name}: a vector index of dimension {dimension} "
                    f"needs {dimension} finite numbers in every row, or NULL; not so in {wrong}"
                )
        return replace(made, dimension=dimension)

    def _first_dimension(self, scan: Scan, column: str) -> int:
        narrow = replace(scan, table=scan.table.narrowed([column]))
        if local_scan.is_small(narrow, self._runtime):
            rows = local_scan.to_arrow(self._runtime, narrow).column(column)
            lengths = pc.drop_null(pc.list_value_length(rows))
            return int(lengths[0].as_py()) if len(lengths) else 0
        from pyspark.sql import functions as F

        with spark_faults():
            found = (
                to_df(self._runtime, narrow)
                .where(F.col(quote(column)).isNotNull())
                .select(F.size(quote(column)))
                .first()
            )
        return 0 if found is None else int(found[0])

    def _wrong(self, scan: Scan, info: TableInfo, column: str, dimension: int) -> str:
        """Examples of rows whose vector does not fit."""
        narrow = replace(scan, table=scan.table.narrowed([column]))
        shown = [c.name for c in info.key_columns]
        if local_scan.is_small(narrow, self._runtime):
            rows = local_scan.to_arrow(self._runtime, narrow)
            places = row_checks.wrong_vectors(rows.column(column), dimension)[:3]
            some = rows.take(pa.array(places))
        else:
            from pyspark.sql import functions as F

            name = quote(column)
            bad = (
                f"{name} is not null and (size({name}) <> {dimension} or exists({name}, "
                f"x -> x is null or isnan(x) or abs(x) > double('{row_checks.LARGEST_ELEMENT:g}')))"
            )
            with spark_faults():
                some = to_df(self._runtime, narrow).where(F.expr(bad)).limit(3).toArrow()
        if not some.num_rows:
            return ""
        if shown:
            return ", ".join(str(row) for row in row_checks.plain_rows(some.select(shown)))
        return ", ".join(f"[{len(v)} elements]" for v in some.column(column).to_pylist())

    def get(self, table: str, name: str) -> Index:
        for index in self.all():
            if index.table == home_of(table) and fold(index.name) == fold(name):
                return index
        raise NotFoundError(f"{table} has no index {name!r}", fix=Fix(Action.LIST_INDEXES))

    def named(self, name: str) -> Index:
        """By its name alone, or with its table before it: `sales.orders.note_ft`."""
        table, dot, last = name.rpartition(".")
        found = [
            index
            for index in self.all()
            if fold(index.name) == fold(last or name)
            and (not dot or index.table in (home_of(table),))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(f"{index.table}.{index.name}" for index in found)
            raise InvalidError(f"several indexes are called {name!r}: write one of {shown}")
        raise NotFoundError(f"there is no index {name!r}", fix=Fix(Action.LIST_INDEXES))

    def all(self) -> list[Index]:
        """All indexes."""
        c = t.job.c
        with self._runtime.database.read() as connection:
            jobs = joblog.records(connection, c.tenant == self._runtime.tenant, c.kind.in_(KINDS))
        return [Index(self._context, job.id, job.home, job.name, job.spec.consumer) for job in jobs]

    def drop(self, table: str, name: str, *, txn: Transaction | None = None) -> None:
        """Drop an index; its objects go with the next purges."""
        index = self.get(table, name)
        self._context.jobs.unregister(index.table, index.name, txn=txn)

    def of_table(self, table: str) -> list[Index]:
        """The indexes of a table."""
        home = home_of(table)
        return [index for index in self.all() if index.table == home]

    # --- hybrid -----------------------------------------------------------------------------

    def search(
        self,
        table: str,
        text: str | None,
        vector: object,
        limit: int,
        *,
        where: str | None,
        columns: Sequence[str] | None,
        freshness: str,
        at: int | None,
    ) -> pa.Table:
        """Search a table by text and by a vector, and put the two lists together by rank."""
        wanted = {FULLTEXT: text, VECTOR: vector}
        asked = {kind: query for kind, query in wanted.items() if query is not None}
        if not asked:
            raise InvalidError("a search needs text=, vector=, or both")
        check_limit(limit)
        check_freshness(freshness)
        found = {kind: self._one(table, kind) for kind in asked}
        if len(asked) == 1:
            ((kind, index),) = found.items()
            return index.search(
                asked[kind], limit, where=where, columns=columns, freshness=freshness, at=at
            )
        if at is None:
            at = min(index.snapshot_for(freshness) for index in found.values())
        deep = min(max(limit * _CANDIDATES, _AT_LEAST), MOST)
        lists = [found[kind].find(query, deep, where=where, at=at) for kind, query in asked.items()]
        return self._fused(found[FULLTEXT], lists, limit, columns)

    def _fused(
        self, index: Index, lists: list[Found], limit: int, columns: Sequence[str] | None
    ) -> pa.Table:
        files, positions, scores = rank_fusion([one.hits for one in lists], limit)
        first = lists[0]
        state = first.reader.state
        hits = replace(first.hits, files=files, positions=positions, scores=scores)
        keys = read_rows(self._runtime, state, hits, state.table.key_columns)
        if not state.table.key:
            keys = pa.table({})
        return index.result(replace(first, hits=replace(hits, keys=keys)), columns=columns)

    def _one(self, table: str, kind: str) -> Index:
        found = [index for index in self.of_table(table) if index.using == kind]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFoundError(f"{table} has no {kind} index: lake.create_index(…) makes one")
        names = ", ".join(index.name for index in found)
        raise InvalidError(
            f"{table} has several {kind} indexes ({names}): search one with lake.index(…).search(…)"
        )


def _check_installed(using: object) -> None:
    """Say at once if the library is missing, not when the job first runs."""
    kind = str(using).casefold()
    if kind == FULLTEXT:
        import tailrace.indexes.text.library
    elif kind == VECTOR:
        import tailrace.indexes.vectors.library  # noqa: F401
