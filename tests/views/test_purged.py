"""Views whose history was purged are rebuilt, each for itself, and are right again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.support.clock import MovableClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

RETENTION = timedelta(days=7)
LONG = RETENTION + timedelta(minutes=1)


def test_a_view_over_a_view_that_lost_its_history_is_right(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    clock = MovableClock()
    with sqlite_lake_args.connect(clock=clock, spark=spark) as lake:
        lake.configure(snapshot_retention=RETENTION)
        sold = lake.create_table(
            "sold", {"id": "bigint", "of": "string", "n": "bigint"}, primary_key="id"
        )
        named = lake.create_table("named", {"of": "string", "shown": "string"}, primary_key="of")
        sold.append([{"id": i, "of": "ab"[i % 2], "n": i} for i in range(6)])
        named.append([{"of": "a", "shown": "A"}])
        lower = lake.create_view("sums", "SELECT of, sum(n) AS n FROM sold GROUP BY of")
        upper = lake.create_view(
            "shown_sums", "SELECT m.shown, s.n FROM sums AS s JOIN named AS m ON s.of = m.of"
        )

        def shown() -> set[tuple[str, int]]:
            lake.run_until_fresh()
            return {(row["shown"], row["n"]) for row in upper.to_arrow().to_pylist()}

        assert shown() == {("A", 6)}
        clock.advance(LONG)
        # The upper alone goes on, so that it is further than the lower is known to be.
        named.append([{"of": "b", "shown": "B"}])
        assert shown() == {("A", 6), ("B", 9)}
        job = lower.status().table, lower.status().name
        lake.jobs.pause(*job)
        sold.upsert([{"id": 0, "of": "a", "n": 100}])
        lake.purge()
        assert "rebuilds it in full" in (lower.status().note or "")
        lower.explain()
        with pytest.raises(tailrace.NotFoundError, match="purged"):
            lower.verify()
        lake.jobs.resume(*job)
        # What the upper one had read of the lower was made before the horizon.
        assert shown() == {("A", 106), ("B", 9)}
        assert [view.history()[0].kind for view in (lower, upper)] == ["snapshot", "tail"]
        for view in (lower, upper):
            report = view.verify()
            assert report.ok, str(report)
