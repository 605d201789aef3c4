"""Thousands of random histories of the runner and the job log; a failing seed can be replayed.

TAILRACE_SEED=17 make test PYTEST_ARGS=tests/propagation/test_simulation.py
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.catalog.database import Database
from tailrace.catalog.migrate import open_catalog
from tests.propagation.simulation import START, World

if TYPE_CHECKING:
    from collections.abc import Iterator

HISTORIES = 2000


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A catalog in memory where there is such a place: a history has some hundred writes."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    made = Database(directory / "catalog.sqlite", lock_timeout=timedelta(seconds=10))
    open_catalog(made, data_path=None, beside=str(directory), now=START, creator="test")
    yield made
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


@pytest.mark.timeout(600)
def test_every_change_reaches_every_job_once(database: Database) -> None:
    chosen = os.environ.get("TAILRACE_SEED")
    seeds = range(HISTORIES) if chosen is None else [int(chosen)]
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run(database, seed, steps=40)
    if chosen is None:  # the histories are worth something: all of it has happened
        assert counts["commits"] > HISTORIES
        assert counts["fenced"] > HISTORIES / 100


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_long_histories(database: Database) -> None:
    for seed in range(100_000, 101_000):
        run(database, seed, steps=300)
