"""Conditions that are answered in the process find the rows that Spark finds."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tailrace
from tailrace.store import predicate, table_files
from tailrace.store.predicate import find, translate_condition
from tailrace.store.scan import to_arrow_with_places

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tailrace.store.files import PositionsByFile
    from tailrace.store.scan import Scan

SEED = 20
HERE = [
    "n > 3", "N BETWEEN 2 AND 5", "n IS NULL OR s = 'red'", "NOT (n > 3)", "n <> 3 AND ok",
    "s LIKE 'r%'", "s IN ('red', 'blue', NULL)", "price >= 1.5", "price * n > 10", "x > 0.5",
    "x = 0.0", "x IN (0.0, 1, 2)", "ok = (n > 3)",
    "day < '2024-06-01'", "day >= DATE '2024-02-29' AND `the name` = 'x'",
    "coalesce(n, 0) % 2 = 0", "length(s) = 3", "CASE WHEN ok THEN n > 2 ELSE s = 'red' END",
    "id > 1000000", "id >= 0",
]  # fmt: skip
# What DuckDB may see otherwise, or not at all: only Spark may answer.
ONLY_SPARK = [
    "s RLIKE '^r'", "n = '3'", "upper(s) = 'RED'", "array_contains(tags, 'a')", "size(tags) > 1",
    "ok = n > 3", "ok <=> ok < true", "least(n) = 1", "substring(s) = 'r'", "year() = 1",
    "n = 1; n = 2", "true",
]  # fmt: skip


def row(random: Random, key: int) -> dict[str, Any]:
    def some(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    return {
        "id": key,
        "n": some(random.randint(-2, 8)),
        "s": some(random.choice(["red", "blue", "", "réd", "r_d"])),
        "the name": some(random.choice(["y", "x"])),
        "price": some(Decimal(random.randint(-500, 500)) / 100),
        "x": some(random.choice([0.0, -0.0, 0.75, float("nan"), float("inf")])),
        "day": some(dt.date(2024, 1, 1) + dt.timedelta(random.randint(0, 365))),
        "ok": some(random.random() < 0.5),
        "tags": some(random.sample(["a", "b", "c"], random.randint(0, 3))),
    }


@pytest.fixture
def lake(sqlite_lake: tailrace.Lake) -> tailrace.Lake:
    """Some files, in which some rows are deleted."""
    random = Random(SEED)
    table = sqlite_lake.create_table(
        "t",
        {"id": "bigint", "n": "int", "s": "string", "the name": "string", "price": "decimal(9,2)",
         "x": "double", "day": "date", "ok": "boolean", "tags": "array<string>"},
        primary_key="id",
    )  # fmt: skip
    for start in range(0, 300, 100):
        table.append([row(random, start + number) for number in range(100)])
    table.delete([{"id": key} for key in random.sample(range(300), 40)])
    return sqlite_lake


def matching_here(lake: tailrace.Lake, scan: Scan, condition: str) -> PositionsByFile | None:
    translated = translate_condition(condition, scan.table)
    return None if translated is None else find(lake.runtime, scan, translated)


def as_lists(places: PositionsByFile) -> dict[int, list[int]]:
    return {key: list(map(int, found)) for key, found in places.items()}


def test_what_is_found_here_is_what_spark_finds(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    # All in one query: a Spark job each would take its time.
    answers = [f"coalesce({condition}, false) AS c{n}" for n, condition in enumerate(HERE)]
    there = table.to_df().selectExpr("id", *answers).toArrow()
    with lake.transaction() as txn:
        scan = txn.scan("main", "t")
    places = to_arrow_with_places(lake.runtime, scan).to_pylist()
    for number, condition in enumerate(HERE):
        here = matching_here(lake, scan, condition)
        assert here is not None, f"{condition} was left to Spark"
        found = as_lists(here)
        mine = [row["id"] for row in places if row["_pos"] in found.get(row["_file"], ())]
        theirs = there.filter(there.column(f"c{number}")).column("id").to_pylist()
        assert sorted(mine) == sorted(theirs), condition


def test_what_may_mean_something_else_is_left_to_spark(lake: tailrace.Lake) -> None:
    with lake.transaction() as txn:
        scan = txn.scan("main", "t")
        found = {text: matching_here(lake, scan, text) for text in ONLY_SPARK}
    assert found == dict.fromkeys(ONLY_SPARK)


@pytest.mark.parametrize("limit", [{"memory_rows": 299}, {"local_bytes": 100}])
def test_what_is_too_large_is_left_to_spark(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    asked = []
    monkeypatch.setattr(predicate, "_with_spark", lambda *_: asked.append(True) or {})
    with lake.transaction() as txn:
        scan = txn.scan("main", "t")
    few = replace(lake.runtime, settings=replace(lake.runtime.settings, **limit))
    for runtime, expected in ((lake.runtime, []), (few, [True])):
        predicate.matching(runtime, scan, "n > 3", lambda ids: stats(lake, scan, ids))
        assert asked == expected


def stats(lake: tailrace.Lake, scan: Scan, ids: Iterable[int]) -> Any:
    with lake.runtime.database.read() as connection:
        return table_files.file_stats(connection, scan.table, tuple(ids), scan.at)


@pytest.mark.parametrize("condition", ["n + 1 > 0", "n * 2 > 0", "2 - n > 0", "n - (2 - 1) > 0"])
def test_what_overflows_is_left_to_spark(lake: tailrace.Lake, condition: str) -> None:
    table = lake.table("t")
    numbers = {"id": 1000, "n": 2**31 - 1}, {"id": 1001, "n": -(2**31)}
    nothing = dict.fromkeys(table.to_arrow().column_names)
    table.append([nothing | row for row in numbers])
    with lake.transaction() as txn:
        scan = txn.scan("main", "t")
    assert matching_here(lake, scan, condition) is None
    with pytest.raises(tailrace.InvalidError, match="OVERFLOW"):
        table.delete(condition)
    assert table.to_arrow().num_rows == 262


def test_several_threads_ask_at_once(lake: tailrace.Lake) -> None:
    with lake.transaction() as txn:
        scan = txn.scan("main", "t")
    expected = [as_lists(matching_here(lake, scan, c) or {}) for c in HERE]
    wrong: list[str] = []

    def ask() -> None:
        for condition, want in zip(HERE, expected, strict=True):
            found = matching_here(lake, scan, condition)
            if found is None or as_lists(found) != want:
                wrong.append(condition)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_searches_and_deletes_with_a_condition_start_no_spark(tmp_path: Path) -> None:
    with tailrace.connect(tmp_path / "lake") as lake:
        table = lake.create_table(
            "doc", {"id": "bigint", "n": "int", "note": "string"}, primary_key="id"
        )
        table.append([{"id": i, "n": i % 3, "note": "a late gift"} for i in range(30)])
        index = lake.create_index("doc", "words", using="fulltext", columns=["note"])
        lake.run_until_fresh()
        found = index.search("late", 100, where="n = 1 AND id > 10")
        assert sorted(found["id"].to_pylist()) == [i for i in range(11, 30) if i % 3 == 1]
        table.delete("n = 2")
        assert np.all(table.to_arrow()["n"].to_numpy() != 2)
        assert lake.runtime.spark.session is None
