"""Everything that is exported, called at random: our errors, no hang, and nothing half done."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.stress.surface import CLASSES, FUNCTIONS, Fuzz
from tests.support import counted, seeds
from tests.support.lakes import CATALOGS, LakeArgs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls name places: they make them here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_a_directory")
def test_random_calls_of_everything_exported(tmp_path: Path, spark: SparkSession) -> None:
    numbers = itertools.count()

    def new_args() -> LakeArgs:
        return LakeArgs(catalog="sqlite", url=str(tmp_path / f"fuzzed{next(numbers)}"))

    call_at_random(new_args, spark, 300)


@pytest.mark.stress
@pytest.mark.timeout(3 * 3600)
@pytest.mark.usefixtures("in_a_directory")
@pytest.mark.parametrize("catalog", CATALOGS)
def test_thousands_of_random_calls_of_everything_exported(
    new_lake_args: Callable[[], LakeArgs], spark: SparkSession
) -> None:
    fuzz = call_at_random(new_lake_args, spark, 5_000)
    # Whatever there is was called: what has no object yet wants one in the fuzz's world.
    called = {name.partition(".")[0] for name in fuzz.called}
    assert {*CLASSES, *FUNCTIONS} - called == set()


def call_at_random(new_args: Callable[[], LakeArgs], spark: SparkSession, calls: int) -> Fuzz:
    fuzz = Fuzz(Random(seeds.seed()), new_args, spark)
    fuzz.run(calls)
    counted.count("random calls of the public surface", calls)
    shown = "\n".join(fuzz.wrong)
    assert not fuzz.wrong, f"seed {seeds.seed()}, {len(fuzz.wrong)} calls went wrong:\n{shown}"
    # Else what was tried would be no use: calls that work, and calls that don't.
    assert min(fuzz.counts.values()) > calls / 10
    return fuzz
