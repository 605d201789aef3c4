"""Random histories in which rows move to other files: no snapshot reads differently, and the change
feed tells nothing of it. In the process alone, so that there can be many."""

from __future__ import annotations

import os
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from tailrace.store import changes
from tailrace.store.names import split_name
from tests.oracle import values
from tests.oracle.history import History
from tests.oracle.test_histories import check_law
from tests.support import counted, duck
from tests.support.lakes import CATALOGS

if TYPE_CHECKING:
    from collections.abc import Callable

    import tailrace
    from tests.support.lakes import LakeArgs

SEEDS = [int(os.environ["TAILRACE_SEED"])] if "TAILRACE_SEED" in os.environ else [1, 2, 3, 4]
# What a history does is the same on each kind of catalog: each has its own here.
PLACES = [(CATALOGS[number % len(CATALOGS)], seed) for number, seed in enumerate(SEEDS)]


def compacted_history(lake: tailrace.Lake, seed: int, steps: int) -> History:
    """A history that is half compactions."""
    history = History(lake, Random(seed), spark=False)
    history.create(keyed=True)
    history.create(keyed=False)
    for _ in range(steps):
        history.step()
        if history.random.random() < 0.5:
            history.compact()
    counted.count("histories with compactions")
    return history


def check_reads(lake: tailrace.Lake, args: LakeArgs, history: History) -> None:
    """Every snapshot has the model's rows, here and in DuckDB."""
    with duck.attach(args) as connection:
        for snapshot, tables in history.at.items():
            for name, model in tables.items():
                rows = lake.table(name).to_arrow(at=snapshot).to_pylist()
                assert values.bag(rows) == model.bag(), (snapshot, name)
                plain = name.removeprefix("main.").strip("`")
                theirs = duck.read_table(connection, "main", plain, snapshot).to_pylist()
                assert values.bag(theirs) == model.bag(), (snapshot, name)


def check_feeds(lake: tailrace.Lake, history: History) -> None:
    """The law of the change feed holds for every pair of snapshots."""
    runtime = lake.runtime
    for since, until in combinations(sorted(history.at), 2):
        for name in history.at[until]:
            table = runtime.mirror.find_table(*split_name(name), until, runtime.tenant)
            assert table is not None
            for net in (True, False):
                feed = changes.to_arrow(
                    runtime, changes.plan(runtime, table, since, until, net=net)
                )
                check_law(history, name, since, until, feed.to_pylist(), net=net)


@pytest.mark.parametrize(("catalog", "seed"), PLACES)
def test_compactions_change_no_snapshot_and_no_feed(
    new_lake_args: Callable[[], LakeArgs], seed: int
) -> None:
    args = new_lake_args()
    with args.connect() as lake:
        history = compacted_history(lake, seed, steps=12)
        check_reads(lake, args, history)
        check_feeds(lake, history)
    # Another process knows nothing of it but what the catalog says.
    with args.connect() as lake:
        check_reads(lake, args, history)
        check_feeds(lake, history)


@pytest.mark.stress
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 160))
def test_long_histories_with_compactions(new_lake_args: Callable[[], LakeArgs], seed: int) -> None:
    args = new_lake_args()
    with args.connect() as lake:
        history = compacted_history(lake, seed, steps=25)
        check_reads(lake, args, history)
        check_feeds(lake, history)
