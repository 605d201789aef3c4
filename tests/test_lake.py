"""The lake as a whole: what it starts, and what it doesn't."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tests.support import duck
from tests.support.lakes import LakeArgs

_WITHOUT_SPARK = """
import sys, tailrace
with tailrace.connect(sys.argv[1]) as lake:
    table = lake.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    table.append([{"id": i, "v": str(i)} for i in range(100)])
    table.upsert([{"id": 5, "v": "five"}])
    table.delete([{"id": 6}])
    assert table.to_arrow().num_rows == 99
    assert table.to_arrow(at=2).num_rows == 100
    assert lake.tables() == ["main.t"] and lake.changed_tables(2) == [(1, 4)]
    lake.sweep()
started = [name for name in sys.modules if name == "py4j.java_gateway"]
import pyspark
assert pyspark.SparkContext._gateway is None, "a JVM was started"
"""


def test_small_work_starts_no_jvm(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_reading_a_table_plans_files_without_a_spark_job(sqlite_lake: tailrace.Lake) -> None:
    table = sqlite_lake.create_table("t", {"id": "bigint"}, primary_key="id")
    for start in range(0, 60, 20):
        table.append([{"id": i} for i in range(start, start + 20)])
    table.delete([{"id": 3}])
    tracker = sqlite_lake.spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    frame = table.to_df()
    feed = table.changes(0)
    assert set(tracker.getJobIdsForGroup()) == before
    assert frame.count() == feed.count() == 59


def test_a_path_that_spark_would_take_for_a_pattern_is_just_a_path(
    tmp_path: Path, spark: object
) -> None:
    args = LakeArgs(catalog="sqlite", url=str(tmp_path / "a [b]{c,d}* ü?"))
    with args.connect(spark=spark) as lake:
        table = lake.create_table("t", {"id": "bigint"})
        table.append(lake.spark.range(5))
        table.append([{"id": 5}])
        table.delete("id = 2")
        assert sorted(r.id for r in table.to_df().collect()) == [0, 1, 3, 4, 5]


def test_a_directory_can_be_copied_and_moved(tmp_path: Path, spark: object) -> None:
    with tailrace.connect(tmp_path / "a") as lake:
        table = lake.create_table("t", {"id": "bigint"}, primary_key="id")
        table.append([{"id": i} for i in range(9)])
        table.delete([{"id": 1}])
        table.delete([{"id": 2}])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "away")
    everything_by_spark = tailrace.Settings(local_rows=-1, bitmap_rows=-1)
    with tailrace.connect(tmp_path / "b", spark=spark, settings=everything_by_spark) as lake:
        lake.table("t").append([{"id": 9}])
        assert sorted(lake.table("t").to_arrow()["id"].to_pylist()) == [0, *range(3, 10)]
    assert not (tmp_path / "a").exists()
    with duck.attach(LakeArgs(catalog="sqlite", url=str(tmp_path / "b"))) as connection:
        found = duck.read(connection, "t")
    assert sorted(found["id"].to_pylist()) == [0, *range(3, 10)]


def test_a_file_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(tailrace.InvalidError, match="a lake is a directory"):
        tailrace.connect(tmp_path / "x")


def test_which_tables_changed_is_told_by_their_rows_alone(lake: tailrace.Lake) -> None:
    for name in ("a", "b", "c"):
        lake.create_table(name, {"id": "bigint"}, primary_key="id")
    since = lake.snapshot
    lake.table("b").append([{"id": 1}])
    lake.table("c").add_column("v", "int")
    assert lake.changed_tables(since) == [(2, since + 1)]
    lake.table("b").delete([{"id": 1}])
    assert lake.changed_tables(since) == [(2, since + 3)]
    assert lake.changed_tables(since + 3) == []
