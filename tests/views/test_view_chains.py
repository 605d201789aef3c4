"""Views on views: one label for a chain, whatever the triggers and whoever refreshes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.support import viewers
from tests.support.process import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


def test_every_version_of_a_chain_and_a_diamond_is_right(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark) as lake:
        viewers.make(lake)
        lake.view("named").refresh()  # brings what it reads along
        assert {lake.view(name).watermark for name in ("totals", "large", "named")} == {
            lake.view("named").watermark
        }
        for number in range(1, 8):
            viewers.write(lake, number)
            lake.view(list(viewers.QUERIES)[number % 5]).refresh()
        lake.run_until_fresh(timeout=120)
        assert viewers.check_versions(sqlite_lake_args, lake) > 10
        for name in viewers.QUERIES:
            assert lake.view(name).verify().ok


def test_sources_that_change_during_a_refresh(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark) as lake:
        viewers.make(lake)
        with lake.serving():
            for number in range(1, 13):
                viewers.write(lake, number)
            wait_until(
                lambda: all(job.is_fresh for job in lake.jobs.list()),
                what="fresh views",
                timeout=180,
            )
        assert [job.error for job in lake.jobs.list()] == [None] * 5
        viewers.check_versions(sqlite_lake_args, lake)


def test_a_view_reads_a_limited_one_in_the_order_of_today(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    nearest = (
        "SELECT d, x FROM a UNION ALL SELECT d, x FROM b "
        "ORDER BY abs(datediff(d, current_date())) LIMIT 3"
    )
    today = datetime.now(UTC).date()
    with sqlite_lake_args.connect(spark=spark) as lake:
        for name, days in [("a", range(3)), ("b", range(9_000, 9_006))]:
            table = lake.create_table(name, {"d": "date", "x": "int"})
            table.append([{"d": today - timedelta(days=n), "x": n} for n in days])
        lake.create_view("u", nearest)
        lake.create_view("w", "SELECT x FROM u").refresh()
        for view in ("u", "w"):
            assert sorted(lake.view(view).to_arrow().column("x").to_pylist()) == [0, 1, 2]
