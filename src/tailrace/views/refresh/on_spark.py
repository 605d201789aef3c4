"""Steps of programs on Spark: relations are DataFrames, and temporary views for queries.

Always true: a session is asked for only when Spark has something to do.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tailrace.spark_sql import types
from tailrace.store import spark_scan
from tailrace.store.find_rows import Wanted
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Scan
from tailrace.store.schema import Column
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_session import SparkProvider, is_classic, session_beside
from tailrace.store.stats import Known, overlap
from tailrace.views.incremental.program import Fetch, Keys
from tailrace.views.query.trees import column_of, names_in, sub
from tailrace.views.refresh.needed_rows import StoredLimit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.views.refresh.execution import InMemory
    from tailrace.views.refresh.sources import SourceReads

_numbers = itertools.count()
_KEY = "tailrace_key"
_ONE_PARTITION = exp.Hint(
    expressions=[exp.Anonymous(this="COALESCE", expressions=[exp.Literal.number(1)])]
)

# Rows of a source that one task reads and computes about as fast as Spark shuffles them.
_FEW_ROWS = 500_000
# Relations in memory up to this size are handed over together.
_PACKED_BYTES = 4 * 1024 * 1024
# What a SELECT has that only joins.
_JOINED = {"expressions", "from_", "joins", "where"}


class NeedsSparkError(Exception):
    """What is in memory has to go to Spark, but is too large for that."""


class OnSpark:
    """Relations on Spark."""

    def __init__(
        self,
        runtime: Runtime,
        reads: SourceReads,
        queries: Mapping[str, exp.Query],
        memory: InMemory,
        *,
        small: bool,
        tiny: bool,
        alone: bool,
    ) -> None:
        """`memory` has the relations that are there.

        `small`: a session for small plans will do, and keys are collected; `tiny`: changes are some
        ten thousand rows, and what else is read may be, too; `alone`: they are too many to be
        handed to Spark.
        """
        self._spark, self._small, self._tiny, self._alone = runtime.spark, small, tiny, alone
        self._runtime = replace(runtime, spark=_SessionOf(self))
        self._reads, self._queries, self._memory = reads, queries, memory
        self.frames: dict[str, DataFrame] = {}
        self._prefix = f"tailrace_{next(_numbers)}_"
        self._views: set[str] = set()
        self._packed: dict[str, str] = {}  # the views that have relations as lists
        self._persisted: list[DataFrame] = []

    @cached_property
    def session(self) -> SparkSession:
        if self._alone:
            raise NeedsSparkError
        session = self._spark()
        return small_session(session, tiny=self._tiny) if self._small else session

    # --- relations --------------------------------------------------------------------------

    def sql(self, query: exp.Query) -> DataFrame:
        """A query over relations."""
        names = self._reached(query)
        if self._small:
            # The first query chooses the session, and mostly there is no other.
            self._tiny = self._tiny and all(map(self._is_little, names))
            self._pack(names)
        tree = self._over_views(query)
        for name in self._queries if self._small else ():
            if name in names:
                tree = tree.with_(name, as_=self._over_views(self._queries[name]), copy=False)
        return self.session.sql(tree.sql("spark"))

    def _reached(self, query: exp.Query) -> set[str]:
        """The relations that a query reads, and those that they follow from."""
        names = names_in(query)
        for name in reversed(list(self._queries)):  # each uses only those before it
            if name in names:
                names |= names_in(self._queries[name])
        return names

    def _over_views(self, query: exp.Query) -> exp.Query:
        """A query over what Spark has, but for relations that are queries in small plans."""
        tree = query.copy()
        if self._small and all(map(self._is_in_one_partition, names_in(query))):
            tree = _in_one_partition(tree)
        for relation in list(tree.find_all(exp.Table)):
            name = relation.name
            if name in self._packed:
                rows = exp.select(exp.func("inline", column_of(name))).from_(self._packed[name])
                relation.replace(sub(rows, relation.alias or "q"))
            elif not (self._small and name in self._queries):
                relation.set("this", exp.to_identifier(self.view(name)))
        return tree

    def _is_in_one_partition(self, name: str) -> bool:
        """Whether a relation follows from what is in memory and from small sources alone."""
        if name in self._queries:
            return all(map(self._is_in_one_partition, names_in(self._queries[name])))
        return self._is_little(name)

    def _is_little(self, name: str) -> bool:
        """Whether a relation is in memory, a query, or a whole source that one task reads soon."""
        if name in self._queries or self._memory.delta(name) is not None:
            return True
        leaf = self._reads.leaves.get(name)
        if leaf is None or leaf.end is None:
            return False
        return self._reads.end(leaf.source, leaf.end).rows <= _FEW_ROWS

    def _pack(self, names: set[str]) -> None:
        """Hand relations in memory to Spark together, each as one value: a call for each is slow.

        Spark then also takes joins of several for small. It estimates the product of their rows,
        and shuffles what seems to be large.
        """
        lists = {}
        for name in sorted(names - self._packed.keys() - self._views):
            rows = self._memory.delta(name)
            if rows is not None and rows.num_columns and rows.nbytes <= _PACKED_BYTES:
                lists[name] = _as_list(rows)
        if lists:
            packed = f"{self._prefix}packed_{len(self._packed)}"
            frame = spark_scan.local_frame(self._runtime, pa.table(lists)).coalesce(1)
            frame.createOrReplaceTempView(packed)
            self._packed |= dict.fromkeys(lists, packed)

    def view(self, name: str) -> str:
        """Spark's name for a relation."""
        full = f"{self._prefix}{name}"
        if name not in self._views:
            self.frame(name).createOrReplaceTempView(full)
            self._views.add(name)
        return full

    def frame(self, name: str) -> DataFrame:
        """A relation's rows."""
        if name not in self.frames:
            rows = self._memory.delta(name)
            if rows is not None:
                # In one partition: what follows is then one task, without an exchange.
                frame = spark_scan.local_frame(self._runtime, rows).coalesce(1)
            elif name in self._queries:
                frame = self.sql(self._queries[name])
            else:
                frame = self._of_source(name)
                if self._small and self._is_little(name):
                    frame = frame.coalesce(1)
            self.frames[name] = frame
        return self.frames[name]

    def _of_source(self, name: str) -> DataFrame:
        leaf = self._reads.leaves[name]
        if leaf.end is None:
            return self._reads.sources.delta_frame(leaf.source)
        whole = self._reads.end(leaf.source, leaf.end)
        self._reads.rows += whole.rows
        return spark_scan.to_df(self._runtime, whole)

    # --- steps ------------------------------------------------------------------------------

    def keys(self, step: Keys) -> None:
        """Compute keys, and collect them if they are few."""
        if self._small:
            with spark_faults():
                first = self.sql(step.query).limit(self._memory.limit + 1).toArrow()
            if first.num_rows <= self._memory.limit:
                self._memory.tables[step.name] = first
                return
        frame = self.sql(step.query).persist()
        self._persisted.append(frame)
        self.frames[step.name] = frame

    def fetch(self, step: Fetch, source: Scan) -> None:
        """Read the rows that have the keys, with a join."""
        if step.keys not in self._memory.tables:
            source = self._pruned_by_bounds(step, source)
        self._reads.rows += source.rows
        rows = spark_scan.to_df(self._runtime, source)
        self.frames[step.name] = self._with_keys(rows, step.own, step.keys, step.key)

    def stored(self, whole: Scan, limit: StoredLimit) -> DataFrame:
        """The stored rows that a change can touch, with their addresses."""
        rows = spark_scan.to_df(self._runtime, whole, places=True)
        return rows if limit.keys is None else self._with_keys(rows, *limit.keys)

    def _with_keys(self, rows: DataFrame, column: str, relation: str, key: str) -> DataFrame:
        """The rows in which a column has one of a relation's keys."""
        from pyspark.sql import functions as F

        keys = self.frame(relation).select(F.col(key).alias(_KEY)).distinct()
        if relation in self._memory.tables:
            keys = F.broadcast(keys)
        return rows.join(keys, F.col(f"`{column}`").eqNullSafe(F.col(_KEY)), "left_semi")

    def _pruned_by_bounds(self, step: Fetch, source: Scan) -> Scan:
        """Only the files that may have rows between the least and the greatest key."""
        from pyspark.sql import functions as F

        column = source.table.column(step.own)
        if not pa.types.is_integer(column.type) and not pa.types.is_date(column.type):
            return source
        key = F.col(step.key)
        with spark_faults():
            bounds = self.frames[step.keys].agg(
                F.min(key), F.max(key), F.count(F.when(key.isNull(), 1))
            )
            low, high, nulls = bounds.collect()[0]
        if type(low) is not (dt.date if pa.types.is_date(column.type) else int):
            return source
        if pa.types.is_integer(column.type):  # the keys may have a wider type
            most = np.iinfo(column.type.to_pandas_dtype())
            low, high = max(low, int(most.min)), min(high, int(most.max))
            if low > high:
                return source
        wanted = _Range(column, pa.array([low, high] + ([None] if nulls else []), column.type))
        stats = self._runtime.mirror.file_stats(source.table, (column.id,), source.at)
        return source.pruned(wanted, stats)

    def close(self) -> None:
        """Release what Spark holds."""
        # Frames first: a Connect server looks up the names in them once more.
        for frame in self._persisted:
            frame.unpersist()
        views = [f"{self._prefix}{name}" for name in self._views]
        for view in {*views, *self._packed.values()}:  # none without a session
            self.session.catalog.dropTempView(view)


def _as_list(rows: pa.Table) -> pa.Array:
    """A list of all rows, alone in its array."""
    columns = [column.combine_chunks() for column in rows.columns]
    structs = pa.StructArray.from_arrays(columns, fields=list(rows.schema))
    return pa.ListArray.from_arrays(
        pa.array([0, rows.num_rows], pa.int32()), structs, type=types.list_of(structs.type)
    )


def _in_one_partition(tree: exp.Query) -> exp.Query:
    """The same query, whose unions and joins are in one partition if their parts are.

    Spark takes the rows of a union for spread, and shuffles those of a join that are joined again:
    each time a stage more.
    """
    holder = exp.Subquery(this=tree)
    for user in list(holder.find_all(exp.Select)):
        if any(join.kind not in ("SEMI", "ANTI") for join in user.args.get("joins") or ()):
            _join_in_one_partition(user)
    for union in list(holder.find_all(exp.Union)):
        if not isinstance(union.parent, exp.Union):
            whole = exp.Select(expressions=[exp.Star()], hint=_ONE_PARTITION.copy())
            union.replace(whole)
            whole.set("from_", exp.From(this=sub(union)))
    query: exp.Query = holder.this
    return query


def _join_in_one_partition(user: exp.Select) -> None:
    """The same for the joins of one SELECT: each but the last in a SELECT of its own."""
    own = [column for column in user.find_all(exp.Column) if column.parent_select is user]
    joins = user.args["joins"]
    if not any(column.table for column in own):
        source = user.args["from_"].this
        for join in joins[:-1]:
            source = sub(
                exp.Select(
                    expressions=[exp.Star()],
                    hint=_ONE_PARTITION.copy(),
                    from_=exp.From(this=source),
                    joins=[join],
                )
            )
        user.set("from_", exp.From(this=source))
        user.set("joins", joins[-1:])
    if {name for name, value in user.args.items() if value} <= _JOINED:
        user.set("hint", _ONE_PARTITION.copy())


class _SessionOf(SparkProvider):
    """Provides a run's session."""

    def __init__(self, spark: OnSpark) -> None:
        super().__init__()
        self._of = spark

    def __call__(self) -> SparkSession:
        return self._of.session


class _Range(Wanted):
    """Anything between two values."""

    def may_hold(self, known: Callable[[Column], Known]) -> bool:
        held = known(self.column)
        return (self.has_null and held.nulls != 0) or overlap(self._limits, held.bounds)


# What a query's result depends on.
_MEANING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
# What translations to DuckDB take for granted about decimals.
_DECIMALS = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
}
_SMALL = {
    # Planning again after each stage takes longer than the stages.
    "spark.sql.adaptive.enabled": "false",
    # What follows from conditions saves little here, and takes Spark long to find: with a hundred
    # sums, minutes.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # What comes from memory is in one partition, and so are its joins: one job does all of them.
    # Each relation that is broadcast would be a job of its own. Keys of large tables ask for that.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # The size of a join is estimated as the product of both sides.
    "spark.sql.maxSinglePartitionBytes": str(2**62),
    # They would push semi joins, and the question whether a list has rows, below what puts rows in
    # one partition, and have them shuffled.
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in (
            "PushDownLeftSemiAntiJoin",
            "PushLeftSemiLeftAntiThroughJoin",
            "InferFiltersFromGenerate",
        )
    ),
    # Several small files are one task.
    "spark.sql.files.openCostInBytes": str(1024 * 1024),
}
# For some ten thousand rows, compiling takes longer than interpreting: a stage, or its parts.
# Of what it compiled, Spark keeps a hundred parts: the views of a lake oust each other's.
_TINY = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def has_known_meaning(session: SparkSession | None) -> bool:
    """Whether a session computes decimals as by default, as one that is started later will."""
    return session is None or all(session.conf.get(k, v) == v for k, v in _DECIMALS.items())


def small_session(session: SparkSession, *, tiny: bool) -> SparkSession:
    """The session for small plans, or for tiny ones, that belongs to a user's session."""
    name, settings = ("tiny", {**_SMALL, **_TINY}) if tiny else ("small", _SMALL)
    beside = session_beside(session, name, settings)
    try:
        _take_over(session, beside)
    except Exception:
        if is_classic(session):
            raise
        # A Connect server forgets a session that nobody has used for an hour.
        beside = session_beside(session, name, settings, anew=True)
        _take_over(session, beside)
    return beside


def _take_over(session: SparkSession, beside: SparkSession) -> None:
    """Let queries mean the same in both sessions."""
    for name in _MEANING:
        meant = session.conf.get(name)
        if meant is not None:
            beside.conf.set(name, meant)
