"""Random histories, compared with a model, with DuckDB reading the same lake, and with the law of
the change feed. A failing seed is in the test's name; `TAILRACE_SEED=n` runs another one."""

from __future__ import annotations

import os
from functools import reduce
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.oracle import values
from tests.oracle.history import History
from tests.support import counted, duck
from tests.support.lakes import CATALOGS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.oracle.history import ModelTable
    from tests.support.lakes import LakeArgs

SEEDS = [int(os.environ["TAILRACE_SEED"])] if "TAILRACE_SEED" in os.environ else [1, 2]
# What a history does is the same on each kind of catalog: each has one of its own here.
PLACES: list[Any] = [(catalog, seed) for catalog in CATALOGS for seed in SEEDS]
if len(SEEDS) == len(CATALOGS):
    own = list(zip(CATALOGS, SEEDS, strict=True))
    PLACES = [one if one in own else pytest.param(*one, marks=pytest.mark.stress) for one in PLACES]
# Nothing is small: every read and every key search is Spark's.
SPARK_ONLY = tailrace.Settings(local_rows=-1, local_keys=-1)
# And nothing fits into a bitmap or a local relation either.
SPARK_LARGE = tailrace.Settings(local_rows=-1, local_keys=-1, bitmap_rows=-1)


def rows_of(frame: DataFrame) -> list[values.Row]:
    return frame.toArrow().to_pylist()


def make_history(lake: tailrace.Lake, seed: int, steps: int, *, spark: bool = True) -> History:
    history = History(lake, Random(seed), spark=spark)
    history.create(keyed=True)
    history.create(keyed=False)
    for _ in range(steps):
        history.step()
    counted.count("histories of a lake")
    return history


def states(history: History) -> Iterator[tuple[int, str, ModelTable]]:
    for snapshot, tables in history.at.items():
        for name, model in tables.items():
            yield snapshot, name, model


def read_frames(lake: tailrace.Lake, history: History) -> dict[tuple[int, str], Counter[Any]]:
    """What `to_df(at=…)` gives for every state; states of one shape are read by one job."""
    from pyspark.sql import functions as F

    shapes: dict[tuple[str, ...], list[tuple[int, str, DataFrame]]] = {}
    for snapshot, name, _ in states(history):
        frame = lake.table(name).to_df(at=snapshot)
        shapes.setdefault((name, str(frame.schema)), []).append((snapshot, name, frame))
    found = {}
    for same in shapes.values():
        marked = [frame.select(F.lit(snapshot).alias("_at"), "*") for snapshot, _, frame in same]
        rows = rows_of(reduce(lambda one, other: one.unionAll(other), marked))
        for snapshot, name, _ in same:
            mine = [row for row in rows if row["_at"] == snapshot]
            found[snapshot, name] = values.bag(
                {k: v for k, v in row.items() if k != "_at"} for row in mine
            )
    return found


@pytest.mark.parametrize(("catalog", "seed"), PLACES)
def test_every_snapshot_reads_the_same_here_and_in_duckdb(
    lake_args: LakeArgs, spark: SparkSession, seed: int
) -> None:
    check_every_snapshot(lake_args, spark, seed, steps=9)


def check_every_snapshot(lake_args: LakeArgs, spark: SparkSession, seed: int, steps: int) -> None:
    with lake_args.connect(spark=spark) as lake:
        history = make_history(lake, seed, steps)
        connection = duck.attach(lake_args)
        frames = read_frames(lake, history)
        for snapshot, name, model in states(history):
            plain = name.removeprefix("main.").strip("`")
            expected = model.bag()
            assert frames[snapshot, name] == expected
            assert values.bag(lake.table(name).to_arrow(at=snapshot).to_pylist()) == expected
            theirs = duck.read_table(connection, "main", plain, snapshot)
            assert values.bag(theirs.to_pylist()) == expected, (snapshot, name)
        connection.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settings", [SPARK_ONLY, SPARK_LARGE], ids=["bitmaps", "joins"])
def test_every_snapshot_reads_the_same_when_all_work_is_sparks(
    sqlite_lake_args: LakeArgs, spark: SparkSession, seed: int, settings: tailrace.Settings
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        history = make_history(lake, seed, 5)
        for snapshot, name, model in list(states(history))[-4:]:
            assert values.bag(rows_of(lake.table(name).to_df(at=snapshot))) == model.bag()


def check_law(
    history: History, name: str, since: int, until: int, feed: list[values.Row], *, net: bool
) -> None:
    """Rows at `since` - deletes + inserts = rows at `until`, under the columns of `until`."""
    after = history.at[until][name]
    before = history.at[since].get(name)
    rows = before.bag(after.columns) if before is not None else values.bag([])
    for change in feed:
        kind, snapshot = change.pop("_change"), change.pop("_snapshot")
        assert since < snapshot <= until
        assert kind in ("insert", "delete")
        change["_kind"] = kind
    inserts = values.bag(_without_kind(feed, "insert"))
    deletes = values.bag(_without_kind(feed, "delete"))
    rows.update(inserts)
    rows.subtract(deletes)
    assert +rows == after.bag()
    assert not -rows
    if net and after.key:
        assert not inserts & deletes
        names = [c.name for c in after.columns if c.identity in after.key]
        for changes in (_without_kind(feed, "insert"), _without_kind(feed, "delete")):
            keys = values.bag({n: row[n] for n in names} for row in changes)
            assert all(count == 1 for count in keys.values())


def _without_kind(feed: list[values.Row], kind: str) -> list[values.Row]:
    return [{k: v for k, v in r.items() if k != "_kind"} for r in feed if r["_kind"] == kind]


@pytest.mark.parametrize(("catalog", "seed"), PLACES)
def test_the_law_of_the_change_feed_holds_for_every_pair_of_snapshots(
    lake_args: LakeArgs, spark: SparkSession, seed: int
) -> None:
    with lake_args.connect(spark=spark) as lake:
        history = make_history(lake, seed, 8)
        _check_all_pairs(lake, history)


@pytest.mark.stress
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 110))
def test_long_histories(
    new_lake_args: Callable[[], LakeArgs], spark: SparkSession, seed: int
) -> None:
    check_every_snapshot(new_lake_args(), spark, seed, steps=20)
    with new_lake_args().connect(spark=spark) as lake:
        _check_all_pairs(lake, make_history(lake, seed, 12))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settings", [SPARK_ONLY, SPARK_LARGE], ids=["bitmaps", "joins"])
def test_the_law_holds_when_all_work_is_sparks(
    sqlite_lake_args: LakeArgs, spark: SparkSession, seed: int, settings: tailrace.Settings
) -> None:
    with sqlite_lake_args.connect(spark=spark) as lake:
        history = make_history(lake, seed, 9, spark=False)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        pairs = [p for p in _pairs(history) if p[2] - p[1] > 1]
        for name, since, until in Random(seed).sample(pairs, 4):
            for net in (True, False):
                feed = rows_of(lake.table(name).changes(since, until, net=net))
                check_law(history, name, since, until, feed, net=net)


def _pairs(history: History) -> list[tuple[str, int, int]]:
    return [
        (name, since, until)
        for since, until in combinations(sorted(history.at), 2)
        for name in history.at[until]
    ]


def _check_all_pairs(lake: tailrace.Lake, history: History) -> None:
    for name, since, until in _pairs(history):
        table = lake.table(name)
        check_law(history, name, since, until, rows_of(table.changes(since, until)), net=True)
        every = rows_of(table.changes(since, until, net=False))
        check_law(history, name, since, until, [dict(row) for row in every], net=False)


def test_a_feed_of_every_step_replays_each_snapshot(
    sqlite_lake: tailrace.Lake,
) -> None:
    history = make_history(sqlite_lake, 11, 14, spark=False)
    last = max(history.at)
    for name, model in history.at[last].items():
        steps = rows_of(sqlite_lake.table(name).changes(0, last, net=False))
        replayed: dict[int, Any] = {}
        rows = values.bag([])
        for snapshot in sorted(history.at):
            now = [dict(row) for row in steps if row["_snapshot"] == snapshot]
            for row in now:
                row.pop("_snapshot")
                sign = 1 if row.pop("_change") == "insert" else -1
                for item in values.bag([row]):
                    rows[item] += sign
            replayed[snapshot] = +rows
        for snapshot, tables in history.at.items():
            if name in tables:
                assert replayed[snapshot] == tables[name].bag(model.columns), snapshot
