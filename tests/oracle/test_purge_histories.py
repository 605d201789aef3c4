"""Random histories that are purged: what is left is as it was, and what is gone is an error.

A failing seed is in the test's name; `TAILRACE_SEED=n` runs another one.
"""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.store import changes
from tailrace.store import tables as t
from tailrace.store.table import Table
from tests.oracle import values
from tests.oracle.history import History
from tests.support import counted, duck
from tests.support.clock import MovableClock

if TYPE_CHECKING:
    from collections import Counter

    from tests.support.lakes import LakeArgs

SEEDS = [int(os.environ["TAILRACE_SEED"])] if "TAILRACE_SEED" in os.environ else [1, 4]
HOUR = timedelta(hours=1)

Feeds = dict[tuple[str, int, int, bool], "Counter[Any]"]


def go_on(history: History, clock: MovableClock, steps: int) -> None:
    """Some steps, an hour apart."""
    for _ in range(steps):
        kind = history.random.random()
        if kind < 0.1:
            history.create()
        elif kind < 0.2 and len(history.now) > 2:
            history.drop()
        else:
            history.step()
        clock.advance(HOUR)


def read_feeds(lake: tailrace.Lake, history: History, pairs: list[tuple[int, int]]) -> Feeds:
    """The feeds of some ranges, of the tables that there still are."""
    found = {}
    for since, until in pairs:
        for name in set(history.at[until]) & set(history.now):
            for net in (True, False):
                plan = lake.table(name)._feed(since, until, net=net)
                rows = changes.to_arrow(lake._runtime, plan).to_pylist()
                found[name, since, until, net] = values.bag(rows)
    return found


def check_states(lake: tailrace.Lake, args: LakeArgs, history: History, oldest: int) -> None:
    """Every snapshot that is left holds what the model says, here and in DuckDB."""
    lake._runtime.deletes._cache.clear()  # what is in memory proves nothing
    connection = duck.attach(args)
    for snapshot, tables in history.at.items():
        for name, model in tables.items():
            plain = name.removeprefix("main.").strip("`")
            table = Table(lake._runtime, "main", plain)  # also if it is dropped by now
            if snapshot < oldest:
                with pytest.raises(tailrace.NotFoundError, match="was purged: this lake has"):
                    table.to_arrow(at=snapshot)
                with pytest.raises(tailrace.NotFoundError, match="was purged: this lake has"):
                    table._feed(snapshot, max(tables_at(history, name)), net=True)
                continue
            assert values.bag(table.to_arrow(at=snapshot).to_pylist()) == model.bag()
            if name in history.now:
                theirs = duck.read_table(connection, "main", plain, snapshot)
                assert values.bag(theirs.to_pylist()) == model.bag(), (snapshot, name)
    connection.close()


def tables_at(history: History, name: str) -> list[int]:
    return [snapshot for snapshot, tables in history.at.items() if name in tables]


def check_nothing_is_left(lake: tailrace.Lake, oldest: int) -> None:
    """No row in the catalog is of the past, and no object is there that no row names."""
    with lake._runtime.database.read() as connection:
        for table in dl.metadata.tables.values():
            if "end_snapshot" in table.c and table is not dl.column:
                query = sa.select(sa.func.count()).where(table.c.end_snapshot <= oldest)
                assert connection.execute(query).scalar_one() == 0, table.name
        ids = set(connection.execute(sa.select(dl.table.c.table_id)).scalars())
        for owner in (t.own_table, t.own_column, dl.column, dl.table_stats, dl.schema_versions):
            assert set(connection.execute(sa.select(owner.c.table_id)).scalars()) <= ids
        files = set(connection.execute(sa.select(dl.data_file.c.data_file_id)).scalars())
        for owner in (t.own_file, dl.file_column_stats):
            assert set(connection.execute(sa.select(owner.c.data_file_id)).scalars()) <= files
        named = {
            path
            for table in (dl.data_file, dl.delete_file)
            for path in connection.execute(sa.select(table.c.path)).scalars()
        }
    assert {path.rpartition("/")[2] for path in lake._runtime.storage.list()} == named


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_purge_leaves_is_as_it_was(lake_args: LakeArgs, seed: int) -> None:
    check_purges(lake_args, seed, rounds=2)


@pytest.mark.stress
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 120))
def test_what_many_purges_leave_is_as_it_was(lake_args: LakeArgs, seed: int) -> None:
    check_purges(lake_args, seed, rounds=4)


def check_purges(lake_args: LakeArgs, seed: int, rounds: int) -> None:
    clock, random = MovableClock(), Random(seed)
    retention = random.randint(2, 6) * HOUR
    with lake_args.connect(clock=clock) as lake:
        lake.configure(snapshot_retention=retention, object_grace=HOUR)
        history = History(lake, random, spark=False)
        history.create(keyed=True)
        history.create(keyed=False)
        oldest = 0
        for _ in range(rounds):
            go_on(history, clock, 8)
            every = list(combinations(sorted(s for s in history.at if s >= oldest), 2))
            pairs = random.sample(every, min(12, len(every)))
            before = read_feeds(lake, history, pairs)
            done = lake.purge()  # also deletes the objects of the last one
            assert oldest < done.horizon < lake.snapshot
            assert (done.held_by, done.snapshots) == (None, done.horizon - oldest)
            assert [s.id for s in lake.snapshots()] == list(range(done.horizon, lake.snapshot + 1))
            oldest = done.horizon
            kept = [pair for pair in pairs if pair[0] >= oldest]
            left = {key: feed for key, feed in before.items() if key[1] >= oldest}
            assert read_feeds(lake, history, kept) == left
            check_states(lake, lake_args, history, oldest)
        clock.advance(retention)
        assert lake.purge().horizon == lake.snapshot
        clock.advance(2 * HOUR)
        lake.purge()
        check_states(lake, lake_args, history, lake.snapshot)
        check_nothing_is_left(lake, lake.snapshot)
        assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)
    counted.count("histories of a lake that is purged")
