"""The 22 queries of TPC-H as views, over rounds of changes in all tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.oracle import fresh
from tests.support import duck
from tests.support.lakes import LakeArgs
from tests.support.tpch import rounds, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    from pyspark.sql import SparkSession

SCALE = 0.01
QUERIES = tables.queries(SCALE)
# The views that are refreshed in full, each with what `explain` gives as the reason.
FULL: dict[str, str] = {}


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[fresh.Site]:
    directory = tmp_path_factory.mktemp("tpch")
    tables.generate(directory / "generated", SCALE)
    args = LakeArgs(catalog="sqlite", url=str(directory / "lake"))
    with args.connect(spark=spark) as lake:
        tables.load(lake, directory / "generated")
        yield fresh.Site(args=args, lake=lake)


@pytest.fixture(scope="module", params=fresh.ROUNDS)
def number(request: pytest.FixtureRequest, site: fresh.Site) -> int:
    """A round, whose changes have been made."""
    if request.param:
        with duck.attach(site.args) as connection:
            rounds.apply(site.lake, connection, request.param)
    return int(request.param)


@pytest.fixture(scope="module")
def oracle(site: fresh.Site, number: int) -> Iterator[duckdb.DuckDBPyConnection]:
    with site.oracle(tables.TABLES) as connection:
        yield connection


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_equals_its_query(
    site: fresh.Site, number: int, oracle: duckdb.DuckDBPyConnection, name: str
) -> None:
    policy = "auto" if name in FULL else "incremental"
    view = site.view(name, QUERIES[name], policy=policy)
    verify = fresh.is_verified(QUERIES, name, number)
    strategy = fresh.check(view, QUERIES[name], oracle, verify=verify)
    if number:
        assert strategy != "build"
        assert (strategy == "full") == (name in FULL)
    if name in FULL:
        assert FULL[name] in str(view.explain())


def test_hardly_any_view_is_refreshed_in_full() -> None:
    assert len(QUERIES) == 22
    assert len(FULL) <= 2
