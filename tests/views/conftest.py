"""Views that are refreshed in memory and on Spark, and compared with Spark's own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.support import counted
from tests.support.answers import Oracle, assert_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


@pytest.fixture
def in_memory(sqlite_lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """A lake whose views are refreshed in memory."""
    settings = tailrace.Settings(memory_rows=1_000_000)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as opened:
        yield opened


@pytest.fixture
def on_spark(
    in_memory: tailrace.Lake, sqlite_lake_args: LakeArgs, spark: SparkSession
) -> Iterator[tailrace.Lake]:
    """The same lake, whose views are refreshed on Spark."""
    settings = tailrace.Settings(memory_rows=0)
    with sqlite_lake_args.connect(spark=spark, settings=settings) as opened:
        yield opened


@pytest.fixture
def follow(in_memory: tailrace.Lake, on_spark: tailrace.Lake, spark: SparkSession) -> Any:
    """Build views, make changes one by one, and compare after each; returns the strategies.

    Of each query there are two views, one for either way of refreshing; Spark answers it once.
    `share`: only one query in so many has a view that is refreshed on Spark. `verify`: their own
    check has to agree.
    """

    def run(
        queries: dict[str, str],
        changes: list[Callable[[], object]],
        policy: str = "incremental",
        *,
        share: int = 1,
        verify: bool = False,
    ) -> list[str]:
        oracle = Oracle(in_memory, spark)
        views: dict[str, list[tailrace.View]] = {}
        for number, (name, sql) in enumerate(queries.items()):
            views[name] = [in_memory.create_view(name, sql, policy=policy)]
            if number % share == 0:
                views[name].append(on_spark.create_view(f"{name}_on_spark", sql, policy=policy))
            counted.count("views compared with Spark after each change", len(views[name]))
        taken: list[str] = []
        for change in [lambda: None, *changes]:
            change()
            oracle.learn()
            for name, query in queries.items():
                answer = oracle.answer(query)
                for view in views[name]:
                    taken.append(str(view.refresh().strategy))
                    assert_same(view.to_arrow(), answer, f"{view.name}: {query}")
        for view, *_ in views.values() if verify else ():
            report = view.verify()
            assert report.ok, str(report)
        return [strategy for strategy in taken if strategy != "build"]

    return run
