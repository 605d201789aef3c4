"""Views that could not be refreshed say so, and go on when they can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.views.refresh.refresh import Refresh

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs


@pytest.fixture
def lake(sqlite_lake: tailrace.Lake) -> tailrace.Lake:
    sqlite_lake.create_table("t", {"k": "int", "x": "bigint"}, primary_key="k")
    sqlite_lake.table("t").append([{"k": 1, "x": 5}, {"k": 2, "x": 6}])
    return sqlite_lake


def test_a_refresh_behind_a_paused_view_says_what_it_waits_for(lake: tailrace.Lake) -> None:
    below = lake.create_view("c1", "SELECT k % 2 AS g, sum(x) AS s FROM t GROUP BY 1")
    above = lake.create_view("c2", "SELECT max(s) AS m FROM c1")
    above.refresh()
    lake.create_table("elsewhere", {"k": "int"})  # fresh, at one more snapshot
    lake.table("elsewhere").append([{"k": 1}])
    before = above.watermark
    assert before is not None
    lake.jobs.pause("c1", "view")
    lake.table("t").append([{"k": 3, "x": 100}])
    with pytest.raises(tailrace.JobFailedError, match=r"waits for main\.c1"):
        above.refresh()
    assert above.watermark == before
    assert not above.status().is_fresh
    lake.jobs.resume("c1", "view")
    done = above.refresh()
    assert done.to_snapshot > before
    assert above.to_arrow().to_pylist() == [{"m": 105}]
    assert below.status().is_fresh


def test_a_watermark_never_goes_back(lake: tailrace.Lake) -> None:
    view = lake.create_view("v", "SELECT x FROM t")
    view.refresh()
    lake.create_table("elsewhere", {"k": "int"})
    seen = [view.watermark]
    for change in (
        lambda: lake.table("elsewhere").append([{"k": 1}]),
        lambda: lake.table("t").append([{"k": 9, "x": 1}]),
        lambda: lake.table("t").delete("k = 1"),
        lambda: lake.table("elsewhere").append([{"k": 2}]),
        view.refresh,
    ):
        change()
        seen.append(view.watermark)
    numbers = [number for number in seen if number is not None]
    assert len(numbers) == len(seen)
    assert numbers == sorted(numbers)


def test_a_sum_that_overflowed_comes_back_when_its_rows_are_gone(lake: tailrace.Lake) -> None:
    view = lake.create_view("v", "SELECT sum(x) AS s FROM t", policy="incremental")
    view.refresh()
    lake.table("t").append([{"k": 3, "x": 2**63 - 1}])
    with pytest.raises(tailrace.JobFailedError, match=r"(?i)overflow"):
        view.refresh()
    lake.table("t").delete("k = 3")
    lake.table("t").append([{"k": 4, "x": 10}])
    assert view.refresh().strategy == "merge"
    assert view.to_arrow().to_pylist() == [{"s": 21}]
    assert view.status().is_fresh


def test_a_view_that_waits_for_a_person_is_tried_when_one_refreshes_it(
    sqlite_lake_args: LakeArgs, lake: tailrace.Lake
) -> None:
    with sqlite_lake_args.connect(
        spark=lake._runtime.spark(), settings=tailrace.Settings(retry_limit=1)
    ) as again:
        view = again.create_view("v", "SELECT sum(x) AS s FROM t")
        view.refresh()
        again.table("t").append([{"k": 3, "x": 2**63 - 1}])
        with pytest.raises(tailrace.JobFailedError):
            view.refresh()
        assert view.status().state == "error"
        again.table("t").delete("k = 3")
        view.refresh()
        assert view.to_arrow().to_pylist() == [{"s": 11}]


def test_spark_reads_a_query_when_a_view_is_created(lake: tailrace.Lake) -> None:
    for wrong, said in (
        ("SELECT no_such_function(x) AS y FROM t", "there is no function NO_SUCH_FUNCTION"),
        ("SELECT x + array(1) AS y FROM t", "Spark cannot read the query"),
    ):
        with pytest.raises(tailrace.InvalidError, match=said):
            lake.create_view("wrong", wrong)
    lake.create_view("below", "SELECT k, named_struct('a', x) AS s FROM t")  # not built
    with pytest.raises(tailrace.InvalidError, match="Spark cannot read the query"):
        lake.create_view("wrong", "SELECT s + 1 AS y FROM below")
    assert lake.create_view("right", "SELECT s.a AS y FROM below").is_checked


def test_a_query_that_spark_has_not_read_is_said_to_be_unchecked(
    sqlite_lake_args: LakeArgs, lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.store.spark_session.SparkProvider.if_there", lambda _self: None)
    with sqlite_lake_args.connect() as alone:
        assert not alone.create_view("v", "SELECT x FROM t").is_checked
        said = alone.sql("CREATE MATERIALIZED VIEW w AS SELECT k FROM t")
        assert "not checked" in str(said)
    lake.view("v").refresh()
    assert lake.view("v").is_checked


def test_what_spark_refuses_of_a_change_is_computed_in_full(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules may make something of a query that Spark does not run: no view is stuck by that."""
    from pyspark.errors import AnalysisException

    view = lake.create_view("v", "SELECT k, x FROM t")
    view.refresh()
    lake.table("t").append([{"k": 3, "x": 7}])

    def refuse(*_: object, **__: object) -> None:
        raise AnalysisException("no equality for that")

    monkeypatch.setattr(Refresh, "_append", refuse)
    assert view.refresh().strategy == "full"
    assert view.verify().ok
    assert "no equality for that" in view.explain().to_dict()["reason"]


def test_verify_tells_types_that_are_not_the_querys(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = lake.create_view("v", "SELECT k, x FROM t")
    view.refresh()
    assert view.verify().ok
    monkeypatch.setattr(
        "tailrace.views.refresh.verify._Recompute.query",
        lambda self, _options: self._spark.sql(
            "SELECT k, CAST(x AS decimal(20,0)) AS x FROM VALUES (1, 5L), (2, 6L) AS t(k, x)"
        ),
    )
    report = view.verify()
    assert not report.ok
    assert report.types == ("x: bigint, in the query decimal(20,0)",)
    assert "replace=True" in str(report)
