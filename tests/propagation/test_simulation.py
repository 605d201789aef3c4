"""Hundreds of random histories of the runner and the job log; a failing seed can be replayed.

TAILRACE_SEED=17 make test PYTEST_ARGS=tests/propagation/test_simulation.py
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.catalog.database import Database
from tailrace.catalog.opening import open_catalog
from tailrace.parts import CATALOG_PARTS
from tests.propagation.simulation import START, World
from tests.support import children, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 40
FEW = range(2550, 2750)  # in two of them, a job loses its history and is rebuilt, which is rare
MANY = range(5000)


@contextmanager
def catalog() -> Iterator[Database]:
    directory = Path(tempfile.mkdtemp())
    made = Database(directory / "catalog.sqlite", lock_timeout=timedelta(seconds=10))
    try:
        open_catalog(
            made, CATALOG_PARTS, data_path=None, beside=str(directory), now=START, creator="test"
        )
        yield made
    finally:
        made.close()
        shutil.rmtree(directory)


def run(database: Database, seed: int, steps: int) -> Counter[str]:
    world = World(database, seed)
    try:
        world.run(steps)
    except Exception as error:
        shown = "\n".join(world.log[-60:])
        raise AssertionError(f"TAILRACE_SEED={seed}: {error}\n{shown}") from error
    return world.counts


def run_many(seeds: range, steps: int, answer: Any) -> None:
    """In a process of its own: the histories, and what happened in them or went wrong."""
    counts: Counter[str] = Counter()
    try:
        with catalog() as database:
            for seed in seeds:
                counts += run(database, seed, steps)
    except AssertionError as error:
        answer.put(str(error))
    else:
        answer.put(counts)


def run_in_two(seeds: range, steps: int) -> Counter[str]:
    answer = children.context().Queue()
    started = [children.start(run_many, part, steps, answer) for part in (seeds[::2], seeds[1::2])]
    counts: Counter[str] = Counter()
    for _ in started:
        found = answer.get(timeout=3600)
        assert not isinstance(found, str), found
        counts += found
    for child in started:
        children.join(child)
    counted.count(f"histories of the runner, {steps} steps each", len(seeds))
    return counts


@pytest.mark.early
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.stress)], ids=len)
def test_every_change_reaches_every_job_once(seeds: range) -> None:
    chosen = os.environ.get("TAILRACE_SEED")
    if chosen is not None:
        with catalog() as database:
            run(database, int(chosen), STEPS)
        return
    counts, histories = run_in_two(seeds, STEPS), len(seeds)
    # The histories are worth something: all of it has happened.
    assert counts["commits"] > 5 * histories
    assert counts["fenced"] > histories / 50
    assert counts["bundles"] > histories
    assert counts["purges"] > histories / 10
    assert counts["ill"] > histories / 2
    assert counts["rebuilds"] > histories / 1000


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_long_histories() -> None:
    run_in_two(range(100_000, 101_000), steps=300)
