"""The 99 queries of TPC-DS as views, over rounds of changes in all tables, compared with Spark.

Every view is asked for its rows, and Spark for its answer to the same text over the tables as they
are then. All views share one lake: it changes once in a round, then each view is refreshed.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle import fresh
from tests.support import duck, queries
from tests.support.lakes import LakeArgs
from tests.support.tpcds import rounds, tables, texts, wishes
from tests.support.tpcds.keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.tpcds.wishes import Wish

pytestmark = [pytest.mark.stress, pytest.mark.timeout(600)]

ROUNDS = range(1 + int(os.environ.get("TAILRACE_ROUNDS") or 2))
# Processor time that a plan may take.
PLANNING = 1.0


@dataclass
class Outcome:
    """What happened to one query, for the table at the end."""

    strategies: dict[int, str] = field(default_factory=dict)
    planning: float | None = None
    reason: str = ""
    rows: dict[int, int] = field(default_factory=dict)
    verdicts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ways = " ".join(f"{self.strategies.get(number, '-'):<8}" for number in ROUNDS[1:])
        sizes = " ".join(f"{self.rows.get(number, '-'):>5}" for number in ROUNDS[1:])
        planning = "-" if self.planning is None else f"{self.planning:.2f}"
        said = "; ".join(dict.fromkeys(self.verdicts)) or "ok"
        because = f"  (in full: {self.reason})" if self.reason else ""
        return f"{ways} {sizes} {planning:>7}  {said}{because}"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The lake with its views, the queries, and what came of them."""

    site: fresh.Site
    spark: SparkSession
    directory: Path
    queries: dict[str, str]
    asked: list[Wish]
    outcomes: dict[str, Outcome]

    def copy_tables(self, number: int) -> None:
        """Give Spark the tables as DuckDB reads them from the lake now."""
        directory = self.directory / f"round{number}"
        directory.mkdir(parents=True)
        with duck.attach(self.site.args) as connection:
            for name in KEYS:
                path = str(directory / f"{name}.parquet")
                connection.execute(f"COPY lake.{name} TO '{path}'")
                self.spark.read.parquet(path).createOrReplaceTempView(name)

    def forget_copies(self) -> None:
        for name in KEYS:
            self.spark.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def benchmark(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Benchmark]:
    directory = tmp_path_factory.mktemp("tpcds")
    with tables.connect() as connection:
        given = texts.queries(connection)
        asked = wishes.collect(given.values(), tables.schemas(connection))
        rows = tables.generate(connection, asked)
    args = LakeArgs(catalog="sqlite", url=str(directory / "lake"))
    with args.connect(spark=spark) as lake:
        tables.load(lake, rows)
        made = Benchmark(
            site=fresh.Site(args=args, lake=lake),
            spark=spark,
            directory=directory / "copies",
            queries=given,
            asked=asked,
            outcomes={},
        )
        yield made
        made.forget_copies()
    plugins = request.config.pluginmanager
    with plugins.get_plugin("capturemanager").global_and_fixture_disabled():
        _show(made, plugins.get_plugin("terminalreporter"))


@pytest.fixture(scope="module", params=ROUNDS)
def number(request: pytest.FixtureRequest, benchmark: Benchmark) -> int:
    """A round, whose changes have been made."""
    if request.param:
        rounds.apply(benchmark.site.lake, benchmark.asked, request.param)
        benchmark.copy_tables(request.param)
    return int(request.param)


@pytest.mark.parametrize("name", texts.NAMES)
def test_a_view_equals_its_query(benchmark: Benchmark, number: int, name: str) -> None:
    query = benchmark.queries[name]
    outcome = benchmark.outcomes.setdefault(name, Outcome())
    with _noted(outcome, f"round {number}: STUCK"):
        if number == 0:
            started = time.process_time()
            explained = benchmark.site.lake.explain(query)
            outcome.planning = time.process_time() - started
            outcome.reason = explained.reason
            # Not the cheapest way, which is the full one for what is small and needs Spark.
            benchmark.site.view(name, query, policy="auto" if explained.reason else "incremental")
        elif name not in benchmark.site.views:
            pytest.fail("the view could not be made")
        view = benchmark.site.views[name]
        outcome.strategies[number] = str(fresh.refreshed(view).strategy)
    if number == 0:
        return  # what was built stays in later rounds, and is compared then
    with _noted(outcome, f"round {number}: WRONG"):
        want = benchmark.spark.sql(query)
        theirs = want.toArrow()
        outcome.rows[number] = theirs.num_rows
        have = view.to_df()
        found = _types(have, want) or _rows(benchmark, query, have.toArrow(), theirs)
        assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("name", texts.NAMES)
def test_a_plan_is_quick(benchmark: Benchmark, name: str) -> None:
    outcome = benchmark.outcomes.get(name)
    assert outcome is not None, "it was not built in this run"
    assert outcome.planning is not None, "it has no plan"
    with _noted(outcome, "SLOW to plan"):
        assert outcome.planning <= PLANNING


def _types(have: DataFrame, want: DataFrame) -> list[str]:
    """What tells the columns apart, in words: their types, and names that the query gives."""
    ours, theirs = have.schema.fields, want.schema.fields
    if len(ours) != len(theirs):
        return [f"{have.columns} against {want.columns}"]
    return [
        f"{mine} against {other}"
        for mine, other in zip(ours, theirs, strict=True)
        if mine.dataType != other.dataType
        or (other.name.isidentifier() and mine.name != other.name)
    ]


def _rows(benchmark: Benchmark, query: str, ours: pa.Table, theirs: pa.Table) -> list[str]:
    """What tells the rows apart, in words."""
    limit = texts.limit(query)
    if limit is None or max(ours.num_rows, theirs.num_rows) < limit:
        return queries.differences(ours, theirs)
    text, terms = texts.with_ties(query, theirs.column_names)
    whole = benchmark.spark.sql(text).toArrow()
    return queries.limited_differences(ours, whole, terms, limit)


@contextmanager
def _noted(outcome: Outcome, verdict: str) -> Iterator[None]:
    """Keep the verdict for the table if it goes wrong."""
    try:
        yield
    except BaseException as error:
        said = str(error).strip().partition("\n")[0]
        outcome.verdicts.append(f"{verdict}: {type(error).__name__}: {said[:200]}")
        raise


def _show(made: Benchmark, terminal: Any) -> None:
    ways = " ".join(f"{f'round {number}':<8}" for number in ROUNDS[1:])
    sizes = " ".join(f"{f'rows{number}':>5}" for number in ROUNDS[1:])
    terminal.write_line("")
    terminal.write_line(f"TPC-DS, changes drawn with the seed {rounds.SEED}")
    terminal.write_line(f"query {ways} {sizes} plan(s)  verdict")
    for name, outcome in sorted(made.outcomes.items()):
        terminal.write_line(f"{name:<5} {outcome}")
