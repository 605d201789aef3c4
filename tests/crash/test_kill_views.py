"""Processes killed in the middle of a refresh, and two that refresh the same views."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support import children, servers, viewers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


# Each is a process with a Spark of its own: the others are left to `make stress`.
@pytest.mark.early
@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("consumed", 1),
        pytest.param("claimed", 1, marks=pytest.mark.stress),
        pytest.param("files written", 2, marks=pytest.mark.stress),
        pytest.param("rows written", 1, marks=pytest.mark.stress),
        pytest.param("committed", 1, marks=pytest.mark.stress),
        pytest.param("job committed", 1, marks=pytest.mark.stress),
    ],
)
def test_a_killed_refresh_leaves_all_of_it_or_nothing(
    sqlite_lake_args: LakeArgs, spark: SparkSession, step: str, nth: int
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=servers.SETTINGS) as lake:
        servers.take_over_soon(lake)
        viewers.make(lake)
        lake.run_until_fresh(timeout=120)
        for number in range(1, 4):
            viewers.write(lake, number)
        child = children.start(viewers.refresh, sqlite_lake_args, step, nth, servers.SETTINGS)
        assert children.join(child, timeout=120) == -signal.SIGKILL
        lake.run_until_fresh(timeout=120)
        viewers.check_versions(sqlite_lake_args, lake)
        assert all(lake.view(name).verify().ok for name in viewers.QUERIES)


@pytest.mark.early
def test_two_processes_refresh_the_same_views(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark, settings=servers.SETTINGS) as lake:
        servers.take_over_late(lake)
        viewers.make(lake)
        child = children.start(viewers.refresh, sqlite_lake_args, None, 0, servers.SETTINGS)
        for number in range(1, 7):
            viewers.write(lake, number)
            lake.run_until_fresh(timeout=180)
        assert children.join(child, timeout=180) == 0
        lake.run_until_fresh(timeout=120)
        viewers.check_versions(sqlite_lake_args, lake)
        assert [job.error for job in lake.jobs.list()] == [None] * 5
