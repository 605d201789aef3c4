"""The queries of Nexmark as views, while events come in and earlier ones change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.oracle import fresh
from tests.support.lakes import LakeArgs
from tests.support.nexmark import rounds, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    from pyspark.sql import SparkSession

QUERIES = tables.queries()
EVENTS = 10_000


@pytest.fixture(scope="module")
def stream() -> tables.Stream:
    return tables.Stream(seed=7)


@pytest.fixture(scope="module")
def site(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, stream: tables.Stream
) -> Iterator[fresh.Site]:
    args = LakeArgs(catalog="sqlite", url=str(tmp_path_factory.mktemp("nexmark") / "lake"))
    with args.connect(spark=spark) as lake:
        tables.create(lake)
        for name, rows in stream.take(EVENTS).items():
            lake.table(name).append(rows)
        yield fresh.Site(args=args, lake=lake)


@pytest.fixture(scope="module", params=fresh.ROUNDS)
def number(request: pytest.FixtureRequest, site: fresh.Site, stream: tables.Stream) -> int:
    """A round, whose changes have been made."""
    if request.param:
        rounds.apply(site.lake, stream, request.param)
    return int(request.param)


@pytest.fixture(scope="module")
def oracle(site: fresh.Site, number: int) -> Iterator[duckdb.DuckDBPyConnection]:
    with site.oracle(tables.TABLES) as connection:
        yield connection


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_equals_its_query(
    site: fresh.Site, number: int, oracle: duckdb.DuckDBPyConnection, name: str
) -> None:
    view = site.view(name, QUERIES[name], policy="incremental")
    verify = fresh.is_verified(QUERIES, name, number)
    strategy = fresh.check(view, QUERIES[name], oracle, verify=verify)
    assert not number or strategy not in ("build", "full")
