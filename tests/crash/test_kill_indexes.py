"""Processes killed while they build, merge and commit segments; searches go on beside them."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.indexes.model import Model, having, keys
from tests.support import children, counted, servers, victim
from tests.support.compaction import compact
from tests.support.lakes import configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

# Merges come often, so that a few commits have some.
SETTINGS = replace(servers.SETTINGS, merge_segments=2)
QUERY = [0.3, -0.2, 0.9, 0.0, 0.4, -1.0]


def freshen(lake: tailrace.Lake) -> None:
    """What the killed process does."""
    lake.run_until_fresh(timeout=60)


def check(model: Model, rows: dict[int, dict[str, Any]], **how: Any) -> None:
    """All that both indexes find."""
    words, near = (model.lake.index("doc", name) for name in ("words", "near"))
    for word in ("late", "box"):
        assert sorted(keys(words.search(word, 1000, **how))) == sorted(having(rows, word))
    found = near.search(QUERY, 1000, **how)
    assert sorted(keys(found)) == sorted(k for k, r in rows.items() if r["v"] is not None)


STEPS = [
    ("segments built", 1),
    ("rows written", 1),
    ("job committed", 1),
    ("segments merged", 1),
    ("rows written", 3),
    ("merge committed", 1),
]
MORE_STEPS = [
    *STEPS,
    ("claimed", 1),
    ("registered", 1),
    ("segments built", 2),
    ("consumed", 1),
    ("locked", 2),
    ("committed", 1),
    ("segments merged", 2),
]


def kill(lake_args: LakeArgs, step: str, nth: int) -> None:
    with lake_args.connect(settings=SETTINGS) as lake:
        servers.take_over_soon(lake)
        model = Model(lake, Random(7))
        model.make()
        for _ in range(4):
            model.step()
        lake.run_until_fresh(timeout=60)
        before, indexed = dict(model.rows), lake.snapshot
        model.step()
        compact(lake, "doc")  # what is to be indexed, and what is, has moved
        model.step()
        arguments = (lake_args, freshen, (), step, nth, SETTINGS)
        child = children.start(victim.run, *arguments)
        assert children.join(child) == -signal.SIGKILL
        check(model, model.rows, freshness="latest")
        check(model, before, at=indexed)
        lake.run_until_fresh(timeout=60)
        check(model, model.rows)
        check(model, before, at=indexed)


@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_a_kill_at_any_step_loses_and_shows_nothing_wrong(
    sqlite_lake_args: LakeArgs, step: str, nth: int
) -> None:
    kill(sqlite_lake_args, step, nth)


@pytest.mark.stress
@pytest.mark.parametrize(("step", "nth"), MORE_STEPS)
def test_the_same_at_more_steps_on_every_catalog(lake_args: LakeArgs, step: str, nth: int) -> None:
    kill(lake_args, step, nth)


def test_what_a_killed_process_wrote_is_swept(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect(settings=SETTINGS) as lake:
        servers.take_over_soon(lake)
        configure(lake, transaction_timeout=timedelta(0))
        model = Model(lake, Random(8))
        model.make()
        model.step()
        child = children.start(
            victim.run, sqlite_lake_args, freshen, (), "segments built", 1, SETTINGS
        )
        assert children.join(child) == -signal.SIGKILL

        def objects() -> int:
            return len(list(sqlite_lake_args.data_directory.rglob("*.segment")))

        assert objects() == 1
        assert lake.sweep().deleted == 1
        assert objects() == 0
        lake.run_until_fresh(timeout=60)
        assert lake.sweep().deleted == 0
        check(model, model.rows)


def search_while_it_changes(lake: tailrace.Lake, steps: int) -> None:
    """Four threads search while iterations and merges run; every result is of one snapshot."""
    model = Model(lake, Random(9))
    model.make()
    model.step()
    lake.run_until_fresh()
    written = threading.Event()
    errors: list[BaseException] = []
    counts = [0] * 4

    def search(number: int) -> None:
        words, near = lake.index("doc", "words"), lake.index("doc", "near")
        try:
            while not (written.is_set() and counts[number]) and not errors:
                how: dict[str, Any] = {"freshness": ("indexed", "latest")[number % 2]}
                found = words.search("late", 1000, **how)
                rows = model.at.get(tailrace.as_of(found))
                if rows is not None:  # the writer may not have noted the very newest yet
                    assert sorted(keys(found)) == sorted(having(rows, "late"))
                found = near.search(QUERY, 1000, **how)
                rows = model.at.get(tailrace.as_of(found))
                if rows is not None:
                    expected = sorted(k for k, r in rows.items() if r["v"] is not None)
                    assert sorted(keys(found)) == expected
                    counts[number] += 1
        except BaseException as error:  # noqa: BLE001  (shown by the test)
            errors.append(error)

    threads = [threading.Thread(target=search, args=(number,)) for number in range(4)]
    with lake.serving():
        for thread in threads:
            thread.start()
        for number in range(steps):
            model.step()
            if number % 4 == 0:
                compact(lake, "doc")
                model.note()
        written.set()
        for thread in threads:
            thread.join()
    assert errors == []
    counted.count("searches beside iterations and merges", sum(counts))
    lake.run_until_fresh()
    check(model, model.rows)


def test_searches_beside_iterations_and_merges(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=SETTINGS) as lake:
        servers.take_over_soon(lake)
        search_while_it_changes(lake, 25)


@pytest.mark.stress
def test_many_searches_beside_iterations_and_merges(
    lake_args: LakeArgs, spark: SparkSession
) -> None:
    with lake_args.connect(spark=spark, settings=SETTINGS) as lake:
        servers.take_over_soon(lake)
        search_while_it_changes(lake, 200)
