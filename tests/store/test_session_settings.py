"""A lake reads the same whatever a user has set in the Spark session."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.oracle.values import bag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}


@pytest.fixture
def odd_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with other settings, which are taken back afterwards."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.mark.parametrize("local_rows", [200_000, -1])
def test_rows_and_changes_are_the_same_under_other_settings(
    sqlite_lake_args: LakeArgs, odd_session: SparkSession, local_rows: int
) -> None:
    moment = datetime(2024, 7, 1, 1, 2, 3, 4, tzinfo=UTC)
    rows = [
        {
            "id": i,
            "at": moment + timedelta(hours=i),
            "local": (moment + timedelta(hours=i)).replace(tzinfo=None),
            "day": date(1500, 1, 1) + timedelta(days=i),
            "raw": b"\xff",
        }
        for i in range(6)
    ]
    settings = tailrace.Settings(local_rows=local_rows)
    with sqlite_lake_args.connect(spark=odd_session, settings=settings) as lake:
        table = lake.create_table(
            "t",
            {
                "id": "bigint",
                "at": "timestamp",
                "local": "timestamp_ntz",
                "day": "date",
                "raw": "binary",
            },
            primary_key="id",
        )
        table.append(rows[:4])
        # What Spark gives us and what it gets from us is the same moment.
        table.upsert(table.to_df().where("id = 3"))
        table.append(rows[4:])
        table.rename_column("local", "here")
        table.delete("at >= timestamp'2024-07-01 02:02:03+00:00' AND id < 2")
        expected = [{**row, "here": row["local"]} for row in rows if row["id"] != 1]
        for row in expected:
            del row["local"]
        assert bag(table.to_arrow().to_pylist()) == bag(expected)
        assert bag(table.to_df().toArrow().to_pylist()) == bag(expected)
        inserts = table.changes(0).drop("_change", "_snapshot").toArrow()
        assert bag(inserts.to_pylist()) == bag(expected)


def test_a_missing_object_is_an_error_even_if_the_session_ignores_such(
    sqlite_lake_args: LakeArgs, odd_session: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=odd_session) as lake:
        table = lake.create_table("t", {"id": "bigint"})
        table.append([{"id": 1}])
        for file in sqlite_lake_args.data_directory.rglob("*.parquet"):
            file.unlink()
        with pytest.raises(tailrace.CorruptError):
            table.to_df()
