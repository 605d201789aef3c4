"""Views over tables whose rows move to other files, and whose own rows do."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as st
from tests.support import viewers
from tests.support.compaction import compact
from tests.support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tailrace.store.files import DataFile
    from tests.support.lakes import LakeArgs


def every_table(lake: tailrace.Lake) -> list[str]:
    """The tables, with those that views are stored in."""
    runtime = lake.runtime
    with runtime.database.read() as connection:
        ids = connection.execute(sa.select(st.own_table.c.table_id)).scalars().all()
    found = (runtime.mirror.table_by_id(number, lake.snapshot) for number in ids)
    return sorted(info.full_name for info in found if info is not None)


@pytest.mark.parametrize("memory_rows", [1_000_000, 0], ids=["memory", "spark"])
def test_every_version_of_views_is_right_across_compactions(
    lake_args: LakeArgs, spark: SparkSession, memory_rows: int
) -> None:
    random = Random(seed())
    settings = tailrace.Settings(memory_rows=memory_rows)

    def some(files: Sequence[DataFile]) -> list[DataFile]:
        return random.sample(files, random.randint(0, len(files)))

    with lake_args.connect(spark=spark, settings=settings) as lake:
        viewers.make(lake)
        lake.run_until_fresh(timeout=120)
        tables = every_table(lake)
        for number in range(1, 15 if memory_rows else 5):
            viewers.write(lake, number)
            for name in random.sample(tables, 2):
                compact(lake, name, some)
            if random.random() < 0.7:
                lake.run_until_fresh(timeout=120)
            for name in random.sample(tables, 2):
                compact(lake, name, some)
        lake.run_until_fresh(timeout=120)
        assert viewers.check_versions(lake_args, lake) > 10
        for name in viewers.QUERIES:
            assert lake.view(name).verify().ok


def test_a_compaction_is_no_change(lake_args: LakeArgs, spark: SparkSession) -> None:
    with lake_args.connect(spark=spark) as lake:
        viewers.make(lake)
        viewers.write(lake, 1)
        lake.run_until_fresh(timeout=120)
        before = lake.snapshot
        for name in every_table(lake):
            compact(lake, name)
        assert lake.snapshot > before
        assert all(job.is_fresh for job in lake.jobs.list())
        assert {job.watermark for job in lake.jobs.list()} == {lake.snapshot}
        assert lake.changed_tables(before) == []
        # Nothing to do; and of what comes next, only that is looked at.
        assert lake.view("totals").refresh().strategy == "nothing"
        lake.table("names").upsert([{"k": 1, "name": "new"}])
        done = lake.view("named").refresh()
        assert done.strategy in ("keys", "rows", "merge")
        assert lake.view("named").verify().ok
