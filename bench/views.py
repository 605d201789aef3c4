"""Refreshing TPC-H's queries as views, against computing them again with Spark.

One lake a scale, with a view of each query. Then, fraction by fraction and kind by kind, orders
change with their lines; every view is refreshed once, and its query computed from scratch into a
new table, both until the commit, in one Spark session that has run all of it before. DuckDB's
time for the query over the same files is a yardstick. Last, small changes of a large aggregate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

import tailrace
from bench import data, report, timing
from bench.bench import Bench
from bench.report import Row
from tests.support import duck, queries
from tests.support.lakes import LakeArgs
from tests.support.tpch import order_changes, tables

# How many times as fast as a recompute a refresh has to be: in the geometric mean, at this scale,
# and at least.
TARGET_SCALE = 3
TARGETS = {
    ("recent", 0.001): 10.0,
    ("recent", 0.01): 5.0,
    ("recent", 0.1): 1.5,
    ("uniform", 0.001): 2.5,
    ("uniform", 0.01): 1.5,
    ("uniform", 0.1): 1.0,
}
WORST = 0.9
# Rows that a refresh after a recent change may decode for each changed row.
DECODED = 25
# A recompute is timed so often, unless that takes longer than so many seconds.
FULLS, PATIENCE = 3, 4.0
# Orders that a part of the generated tables has: what arrives in the lake at once.
PART_ORDERS = 500_000

TOTALS_ROWS, TOTALS_CHANGED, TOTALS_RECENT, TOTALS_ROUNDS = 5_000_000, 1_000, 5_000, 7


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One query after one change."""

    name: str
    refresh: float  # seconds
    full: float
    yardstick: float
    strategy: str
    rows_read: int
    rows_decoded: int  # less than were read, where some were kept in memory from before
    jobs: int  # that Spark started for the refresh
    equal: bool  # the view has the rows of the recompute

    @property
    def faster(self) -> float:
        return self.full / self.refresh

    def row(self, title: str) -> Row:
        """One line of the report. The ratio says how many times as fast the refresh was."""
        did = f"{self.strategy}, {report.count(self.rows_read)} rows read, {self.jobs} jobs"
        return Row(
            what=f"{self.name}, {title}" + ("" if self.equal else ": WRONG ROWS"),
            measured=f"{report.duration(self.refresh)} ({did})",
            compared=f"recompute {report.duration(self.full)}, "
            f"DuckDB {report.duration(self.yardstick)}",
            ratio=self.faster,
            target=f"≥ {WORST:g}{report.TIMES}",
            met=self.equal and self.faster >= WORST,
        )


def measure(bench: Bench) -> Iterator[Row]:
    parts = {"tpch": _tpch, "totals": _totals, "nothing": _nothing}
    for part in bench.choice.parts:
        yield from parts[part](bench)


def _tpch(bench: Bench) -> Iterator[Row]:
    for scale in bench.choice.scales:
        with bench.directory() as place:
            args = LakeArgs(catalog="sqlite", url=str(place / "lake"))
            parts = max(1, round(scale * 1_500_000 / PART_ORDERS))
            tables.generate(place / "generated", scale, parts=parts)
            settings = tailrace.Settings(memory_rows=0) if bench.choice.on_spark else None
            with args.connect(spark=bench.spark, settings=settings) as lake:
                tables.load(lake, place / "generated")
                yield from _measure(bench, Site(bench, lake, args, scale), scale)


class Site:
    """A lake with TPC-H's tables, and the queries as views and as plain Spark SQL."""

    def __init__(self, bench: Bench, lake: tailrace.Lake, args: LakeArgs, scale: float) -> None:
        self.bench, self.lake, self.args = bench, lake, args
        texts = tables.queries(scale)
        self.texts = {f"Q{n}": texts[f"q{n:02d}"] for n in bench.choice.queries}
        self.views: dict[str, Any] = {
            name: lake.create_view(f"main.{name.lower()}", text)
            for name, text in self.texts.items()
        }
        self._seed = self._recomputes = 0

    def change(self, fraction: float, kind: str) -> order_changes.Change:
        self._seed += 1
        with duck.attach(self.args) as connection:
            return order_changes.apply(
                self.lake, connection, fraction=fraction, kind=kind, seed=self._seed
            )

    def recompute(self, name: str) -> str:
        """What somebody without views does: the query's rows into a new table; its name."""
        self._recomputes += 1
        table = f"recompute_{self._recomputes}"
        for source in _sources(self.texts[name]):
            self.lake.table(source).to_df().createOrReplaceTempView(source)
        frame = self.bench.spark.sql(self.texts[name])
        with self.lake.transaction() as txn:
            txn.create_table(table, frame.schema).append(frame)
        return table

    def measure(self, name: str) -> Measured:
        before, kept = _jobs(self.bench), self.lake.runtime.kept_files
        decoded = kept.decoded
        done: list[Any] = []
        refresh = timing.seconds(lambda: done.append(self.views[name].refresh()))
        jobs, decoded = _jobs(self.bench) - before, kept.decoded - decoded
        fulls: list[float] = []
        while len(fulls) < FULLS and sum(fulls) < PATIENCE:
            recomputed: list[str] = []
            fulls.append(
                timing.seconds(
                    lambda recomputed=recomputed: recomputed.append(self.recompute(name))
                )
            )
            rows = self.lake.table(recomputed[0]).to_arrow()
            self.lake.drop_table(recomputed[0])
        return Measured(
            name=name,
            refresh=refresh,
            full=statistics.median(fulls),
            yardstick=self._yardstick(name),
            strategy=str(done[0].strategy),
            rows_read=done[0].rows_read,
            rows_decoded=decoded,
            jobs=jobs,
            equal=self._is_equal(name, rows),
        )

    def _is_equal(self, name: str, rows: Any) -> bool:
        """Whether a view has a recompute's rows; of equal ones at a LIMIT, each may take others."""
        view = self.views[name]
        return not queries.differences(view.to_df().toArrow(), rows) or view.verify().ok

    def _yardstick(self, name: str) -> float:
        with duck.attach(self.args) as connection:
            connection.execute("USE lake")
            text = queries.to_duckdb(self.texts[name])
            taken = [
                timing.seconds(lambda: connection.execute(text).fetchall()) for _ in range(FULLS)
            ]
        return statistics.median(taken)


def _measure(bench: Bench, site: Site, scale: float) -> Iterator[Row]:
    building = timing.seconds(lambda: [view.refresh() for view in site.views.values()])
    yield Row(
        what=f"build of {len(site.views)} views, scale {scale:g}",
        measured=report.duration(building),
    )
    # Everything has run once before a time counts.
    for kind in bench.choice.kinds:
        site.change(0.0005, kind)
        for name, view in site.views.items():
            view.refresh()
            site.lake.drop_table(site.recompute(name))
    for kind in bench.choice.kinds:
        for fraction in bench.choice.fractions:
            change = site.change(fraction, kind)
            title = f"{fraction * 100:g} % {kind}, scale {scale:g}"
            measured = []
            for name in site.views:
                measured.append(site.measure(name))
                yield measured[-1].row(title)
            summed = f"{title} ({report.count(change.lines)} lines)"
            target = TARGETS.get((kind, fraction)) if scale == TARGET_SCALE else None
            yield from _summary(summed, measured, target)
            yield _decoded(summed, measured, change, kind)


def _summary(title: str, measured: list[Measured], target: float | None) -> Iterator[Row]:
    mean = _mean(one.faster for one in measured)
    yield Row(
        what=f"refresh, geometric mean of {len(measured)} views, {title}",
        measured=report.duration(sum(one.refresh for one in measured)),
        compared=f"recompute {report.duration(sum(one.full for one in measured))}",
        ratio=mean,
        target="" if target is None else f"≥ {target:g}{report.TIMES}",
        met=None if target is None else mean >= target,
    )
    worst = min(measured, key=lambda one: one.faster)
    yield Row(
        what=f"… the worst of them, {worst.name}",
        measured=report.duration(worst.refresh),
        compared=f"recompute {report.duration(worst.full)}",
        ratio=worst.faster,
        target=f"≥ {WORST:g}{report.TIMES}",
        met=worst.faster >= WORST,
    )
    yield Row(
        what="… DuckDB's recompute ÷ refresh, geometric mean",
        measured=report.duration(sum(one.refresh for one in measured)),
        compared=f"DuckDB {report.duration(sum(one.yardstick for one in measured))}",
        ratio=_mean(one.yardstick / one.refresh for one in measured),
    )
    most = max(measured, key=lambda one: one.jobs)
    yield Row(what="… the most Spark jobs of a refresh", measured=f"{most.jobs} ({most.name})")


def _mean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def _decoded(title: str, measured: list[Measured], change: order_changes.Change, kind: str) -> Row:
    most = max(measured, key=lambda one: one.rows_decoded)
    each = most.rows_decoded / (change.orders + change.lines)
    return Row(
        what=f"rows decoded for a changed row, at most, {title}",
        measured=f"{each:.1f} ({most.name}, {report.count(most.rows_decoded)} rows)",
        compared="what earlier refreshes decoded is kept in memory",
        target=f"≤ {DECODED}" if kind == "recent" else "",
        met=each <= DECODED if kind == "recent" else None,
    )


def _totals(bench: Bench) -> Iterator[Row]:
    """A thousand changed rows of a large table, in a view of totals."""
    rows = min(bench.size(TOTALS_ROWS), TOTALS_ROWS)
    draw = np.random.default_rng(1)
    with bench.lake() as (lake, _):
        table = lake.create_table("orders", data.ORDERS, primary_key="id")
        table.append(data.orders_frame(bench.spark, rows, files=4))
        query = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
        view = lake.create_view("main.totals", query)
        view.refresh()
        for kind in order_changes.KINDS:
            first = max(0, rows - TOTALS_RECENT) if kind == "recent" else 0
            among = np.arange(first, rows)

            def ours(number: int, among: data.Ids = among) -> timing.Action:
                ids = draw.choice(among, min(len(among), TOTALS_CHANGED), replace=False)
                table.upsert(data.orders_rows(ids, version=number + 10))
                return view.refresh

            taken = timing.alternate(TOTALS_ROUNDS, warm_up=2, ours=ours)
            yield report.absolute(
                f"refresh of totals, {report.count(TOTALS_CHANGED)} changed rows, {kind} keys, "
                f"of {report.count(rows)}",
                taken["ours"],
                most=1.0,
            )


def _nothing(bench: Bench) -> Iterator[Row]:
    """A refresh that finds that nothing changed, or only what the view doesn't read."""
    with bench.lake() as (lake, _):
        table = lake.create_table("orders", data.ORDERS, primary_key="id")
        table.append(data.orders_rows(np.arange(10_000)))
        other = lake.create_table("other", {"id": "bigint"})
        query = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
        view = lake.create_view("main.totals", query)
        view.refresh()
        before = _jobs(bench)

        def elsewhere(_: int) -> timing.Action:
            other.append([{"id": 1}])
            return view.refresh

        taken = timing.alternate(20, warm_up=3, same=lambda _: view.refresh, elsewhere=elsewhere)
        jobs = _jobs(bench) - before
    for name, what in (("same", "nothing changed"), ("elsewhere", "another table changed")):
        row = report.absolute(f"refresh, {what}", taken[name], most=0.01, compared=f"{jobs} jobs")
        yield row if jobs == 0 else _missed(row)


def _missed(row: Row) -> Row:
    return Row(
        what=row.what, measured=row.measured, compared=row.compared, target=row.target, met=False
    )


def _sources(query: str) -> list[str]:
    """The lake's tables that a query reads."""
    named = sqlglot.parse_one(query, read="spark").find_all(exp.Table)
    return sorted({table.name for table in named} & set(tables.TABLES))


def _jobs(bench: Bench) -> int:
    """How many jobs Spark has started so far, from whatever thread."""
    context: Any = bench.spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())
