"""Compares a view with a recompute of its query, down to the tables, at its watermark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tailrace.errors import Action, Fix, InvalidError, Words, in_python
from tailrace.propagation import joblog
from tailrace.propagation.job import JobRecord
from tailrace.propagation.outputs import version_at
from tailrace.spark_sql import types
from tailrace.store import spark_scan
from tailrace.store.names import split_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.table import scan_at
from tailrace.views.definition import STORED_KEY, Definition, over_frames, reader_of
from tailrace.views.incremental.identity import comparable
from tailrace.views.incremental.layout import Layout
from tailrace.views.query.trees import column_of
from tailrace.views.resolve import definition_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Up to so many differing rows are compared once more, with a tolerance for floats.
_CLOSE_LOOK = 20_000
_EXAMPLES = 10
_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Report:
    """Whether a view equals its query, and what differs."""

    view: str
    ok: bool
    watermark: int
    rows: int  # of the view
    missing: int  # rows of the query that the view lacks
    extra: int  # rows of the view that the query lacks
    examples: tuple[dict[str, Any], ...]  # `_side` is "missing" or "extra", then the columns
    types: tuple[str, ...] = ()  # columns whose type is not the query's, with both types

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def __str__(self) -> str:
        return self.said(in_python)

    def said(self, words: Words) -> str:
        """The report, with what to do in a front door's words."""
        if self.ok:
            return f"{self.view}: ok, {self.rows:,} rows at snapshot {self.watermark}"
        shown = "\n".join(f"  {line}" for line in (*self.types, *self.examples))
        if self.types and not self.missing and not self.extra:
            fix = words(Fix(Action.CREATE_VIEW_AGAIN, self.view))
            return f"{self.view}: DIFFERS in the types of columns; {fix}\n{shown}"
        return (
            f"{self.view}: DIFFERS at snapshot {self.watermark}: {self.missing:,} rows are "
            f"missing, {self.extra:,} should not be there\n{shown}"
        )


def verify(runtime: TenantRuntime, job: JobRecord) -> Report:
    """Compare a view with its query, on Spark."""
    from datetime import datetime

    options = job.spec.consumer
    assert job.watermark is not None
    recompute = _Recompute(runtime, job.watermark)
    moment = job.last.memory.get("moment") or None
    if moment is not None:
        recompute.moment = datetime.fromisoformat(moment)
    want = recompute.query(options)
    have = recompute.stored(options)
    if want.columns != have.columns:
        want = want.toDF(*have.columns)
    other = _other_types(want, have)
    with spark_faults():
        count = have.count()
        missing, extra, examples = _compare(want, have)
    return Report(
        view=str(options["view"]),
        ok=not missing and not extra and not other,
        watermark=job.watermark,
        rows=count,
        missing=missing,
        extra=extra,
        examples=tuple(examples),
        types=other,
    )


def _other_types(want: DataFrame, have: DataFrame) -> tuple[str, ...]:
    """Columns whose type in the view is not the query's."""
    own, theirs = (
        [types.spark_type(types.from_spark(f["type"])) for f in frame.schema.jsonValue()["fields"]]
        for frame in (have, want)
    )
    return tuple(
        f"{name}: {mine}, in the query {other}"
        for name, mine, other in zip(have.columns, own, theirs, strict=True)
        if mine != other
    )


class _Recompute:
    """Queries at one snapshot, with views replaced by their queries."""

    def __init__(self, runtime: TenantRuntime, at: int) -> None:
        self._runtime, self._at = runtime, at
        self._spark = runtime.spark()
        self.moment: Any = None

    def query(self, options: Mapping[str, Any]) -> DataFrame:
        definition = self._defined(options)
        frames: dict[str, DataFrame] = {}
        for key, given in definition.inputs.items():
            if given.view is not None:
                with self._runtime.database.read() as connection:
                    own = joblog.options(connection, given.view.job)
                frames[key] = self.query(own)
            else:
                assert given.table is not None
                scan = scan_at(self._runtime, given.table, self._at)
                frames[key] = spark_scan.to_df(self._runtime, scan)
        tree = definition.tree.copy()
        if definition.layout is not None and definition.layout.limit is not None:
            _break_ties(definition.layout, tree)
        with spark_faults():
            return over_frames(self._spark, tree, frames)

    def stored(self, options: Mapping[str, Any]) -> DataFrame:
        table = self._stored(options["table"])
        if table is None:
            fix = Fix(Action.BUILD_VIEW, options["view"])
            raise InvalidError(f"the view {options['view']} has not been built", fix=fix)
        with self._runtime.database.read() as connection:
            version = version_at(connection, table.id, self._at)
        assert version is not None
        frame = spark_scan.to_df(self._runtime, scan_at(self._runtime, table, version))
        definition = self._defined(options)
        reader = reader_of(definition, [c.name for c in table.columns])
        with spark_faults():
            return over_frames(self._spark, reader, {STORED_KEY: frame})

    def _defined(self, options: Mapping[str, Any]) -> Definition:
        return definition_at(
            self._runtime, options, at=self._at, stored=self._stored, moment=self.moment
        )

    def _stored(self, name: str) -> TableInfo | None:
        mirror = self._runtime.mirror
        return mirror.find_table(*split_name(name), mirror.newest(), self._runtime.tenant)


def _break_ties(layout: Layout, tree: exp.Query) -> None:
    """Let a query's LIMIT break ties by all columns, as the view does."""
    count = sum(not column.hidden for column in layout.columns)
    order = tree.args.get("order")
    places = [exp.Ordered(this=exp.Literal.number(n + 1), nulls_first=True) for n in range(count)]
    expressions = [*(order.expressions if order is not None else ()), *places]
    tree.set("order", exp.Order(expressions=expressions))


def _compare(want: DataFrame, have: DataFrame) -> tuple[int, int, list[dict[str, Any]]]:
    from pyspark.sql import functions as F

    kinds = types.of_columns(have.schema)
    names = list(kinds)
    columns = [f"c{n}" for n in range(len(names))]
    plain = [
        F.expr(comparable(column_of(n, quoted=True), kinds[n]).sql("spark")).alias(c)
        for n, c in zip(names, columns, strict=True)
    ]
    # Without a cast, which would hide differences.
    wanted = want.toDF(*names).select(*plain).withColumn("_n", F.lit(1))
    had = have.select(*plain).withColumn("_n", F.lit(-1))
    different = wanted.unionAll(had).groupBy(*columns).agg(F.sum("_n").alias("_n")).where("_n <> 0")
    rows = [row.asDict() for row in different.limit(_CLOSE_LOOK + 1).collect()]
    if len(rows) > _CLOSE_LOOK:
        counted = different.agg(
            F.sum(F.when(F.col("_n") > 0, F.col("_n"))),
            F.sum(F.when(F.col("_n") < 0, -F.col("_n"))),
        ).first()
        assert counted is not None
        return int(counted[0] or 0), int(counted[1] or 0), _examples(rows, names, columns)
    left = _without_close(rows, columns)
    missing = sum(row["_n"] for row in left if row["_n"] > 0)
    extra = -sum(row["_n"] for row in left if row["_n"] < 0)
    return missing, extra, _examples(left, names, columns)


def _without_close(rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """Drop pairs that differ only in the last digits of floats, or in the order of lists."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(
            repr(v) if not isinstance(v, float | list) else None for v in (row[c] for c in columns)
        )
        groups.setdefault(key, []).append(row)
    left = []
    for group in groups.values():
        wanted = [dict(row) for row in group if row["_n"] > 0]
        had = [dict(row) for row in group if row["_n"] < 0]
        for one in wanted:
            for other in had:
                if one["_n"] and other["_n"] and all(_same(one[c], other[c]) for c in columns):
                    pairs = min(one["_n"], -other["_n"])
                    one["_n"] -= pairs
                    other["_n"] += pairs
        left += [row for row in (*wanted, *had) if row["_n"]]
    return left


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(
            a, b, rel_tol=_TOLERANCE, abs_tol=1e-12
        )
    if isinstance(a, list) and isinstance(b, list):
        pairs = zip(sorted(a, key=repr), sorted(b, key=repr), strict=False)
        return len(a) == len(b) and all(_same(x, y) for x, y in pairs)
    return bool(a == b) or (a is None and b is None)


def _examples(
    rows: list[dict[str, Any]], names: list[str], columns: list[str]
) -> list[dict[str, Any]]:
    return [
        {
            "_side": "missing" if row["_n"] > 0 else "extra",
            **{name: row[column] for name, column in zip(names, columns, strict=True)},
        }
        for row in rows[:_EXAMPLES]
    ]
