"""The indexes of a lake: creates, finds and drops them, and searches two at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.indexes.definition import KINDS, NewIndex, define
from tailrace.indexes.index import (
    MOST,
    Context,
    Index,
    check_freshness,
    check_limit,
)
from tailrace.indexes.results import Found, rank_fusion, read_rows, to_table
from tailrace.indexes.text.kind import FullText
from tailrace.indexes.vectors.kind import Vector
from tailrace.propagation import joblog
from tailrace.propagation import tables as t
from tailrace.propagation.jobs import home_of
from tailrace.store.names import fold

if TYPE_CHECKING:
    from tailrace.store.transaction import Transaction

# Rows of each index that go into a fused list: so many times the limit, and at least so many.
_CANDIDATES = 4
_AT_LEAST = 50


class Indexes:
    """Behind `lake.create_index` and its siblings."""

    def __init__(self, context: Context) -> None:
        self._context, self._runtime = context, context.runtime

    # --- creating and dropping --------------------------------------------------------------

    def add(self, txn: Transaction, new: NewIndex) -> None:
        """Create an index with the commit of a transaction, which may create the table, too."""
        new.kind.check_installed()
        if "." in new.name or "`" in new.name:
            raise InvalidError(f"the name of an index has no dots or backticks: {new.name!r}")
        table = txn.info(new.table)
        definition = new.kind.complete(txn, table, define(table, new))
        spec: dict[str, Any] = {"consumer": definition.to_spec(), "priority": new.priority}
        if new.trigger is not None:
            is_name = isinstance(new.trigger, str)
            spec["trigger"] = {"job_type": new.trigger} if is_name else new.trigger
        if not self._context.jobs.register(new.table, new.name, spec, txn=txn):
            raise InvalidError(f"{new.table} has a job or an index {new.name!r} already")

    def get(self, table: str, name: str) -> Index:
        for index in self.of_table(table):
            if fold(index.name) == fold(name):
                return index
        raise NotFoundError(f"{table} has no index {name!r}", fix=Fix(Action.LIST_INDEXES))

    def named(self, name: str) -> Index:
        """By its name alone, or with its table before it: `sales.orders.note_ft`."""
        table, dot, last = name.rpartition(".")
        matching = [
            index
            for index in self.all()
            if fold(index.name) == fold(last) and (not dot or index.table == home_of(table))
        ]
        if len(matching) == 1:
            return matching[0]
        if matching:
            shown = ", ".join(f"{index.table}.{index.name}" for index in matching)
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
        """Search a table by text, by a vector, or by both, fusing the two lists by rank."""
        wanted = {FullText.name: text, Vector.name: vector}
        asked = {kind: query for kind, query in wanted.items() if query is not None}
        if not asked:
            raise InvalidError("a search needs text=, vector=, or both")
        check_limit(limit)
        check_freshness(freshness)
        indexes = {kind: self._one(table, kind) for kind in asked}
        if len(asked) == 1:
            ((kind, index),) = indexes.items()
            return index.search(
                asked[kind], limit, where=where, columns=columns, freshness=freshness, at=at
            )
        if at is None:
            at = min(index.snapshot_for(freshness) for index in indexes.values())
        deep = min(max(limit * _CANDIDATES, _AT_LEAST), MOST)
        lists = [
            indexes[kind].find(query, deep, where=where, at=at) for kind, query in asked.items()
        ]
        return to_table(self._runtime, self._fused(lists, limit), columns=columns)

    def _fused(self, lists: list[Found], limit: int) -> Found:
        files, positions, scores = rank_fusion([one.hits for one in lists], limit)
        first = lists[0]
        snapshot = first.reader.snapshot
        hits = replace(first.hits, files=files, positions=positions, scores=scores)
        keys = read_rows(self._runtime, snapshot, hits, snapshot.table.key_columns)
        if not snapshot.table.key:
            keys = pa.table({})
        return replace(first, hits=replace(hits, keys=keys))

    def _one(self, table: str, kind: str) -> Index:
        matching = [index for index in self.of_table(table) if index.using == kind]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise NotFoundError(f"{table} has no {kind} index: lake.create_index(…) makes one")
        names = ", ".join(index.name for index in matching)
        raise InvalidError(
            f"{table} has several {kind} indexes ({names}): search one with lake.index(…).search(…)"
        )
