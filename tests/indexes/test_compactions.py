"""Indexes of tables whose rows move to other files: searches find what brute force finds."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.indexes import build
from tailrace.indexes import tables as t
from tailrace.indexes.index_snapshot import IndexSnapshot, index_at
from tailrace.indexes.row_addresses import write_rows
from tailrace.indexes.segment import next_row_id
from tailrace.sql.listings import system_rows
from tailrace.store.files import Op
from tests.indexes.model import WORDS, Model, having, keys, nearest, new_row, scores
from tests.support import counted
from tests.support.clock import MovableClock
from tests.support.compaction import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tailrace.store.files import DataFile
    from tests.support.lakes import LakeArgs

SETTINGS = tailrace.Settings(merge_segments=3)
QUERY = [0.3, -0.2, 0.9, 0.0, 0.4, -1.0]
HOUR = timedelta(hours=1)


def check(lake: tailrace.Lake, rows: dict[int, dict[str, Any]], **how: Any) -> None:
    """What both indexes find, with and without a condition, and what is read of it."""
    words, near = lake.index("doc", "words"), lake.index("doc", "near")
    few = {key: row for key, row in rows.items() if row["n"] < 5}
    for word in WORDS[:2]:
        found = words.search(word, 1000, columns=["n", "note"], **how)
        assert sorted(keys(found)) == sorted(having(rows, word)), (word, how)
        for row in found.to_pylist():
            assert (row["n"], row["note"]) == (rows[row["id"]]["n"], rows[row["id"]]["note"])
        found = words.search(word, 1000, where="n < 5", **how)
        assert sorted(keys(found)) == sorted(having(few, word)), (word, how)
    for some, where in ((rows, None), (few, "n < 5")):
        found = near.search(QUERY, 1000, where=where, **how)
        assert sorted(keys(found)) == sorted(k for k, r in some.items() if r["v"] is not None)
        assert scores(found) == pytest.approx(nearest(some, QUERY, 1000, "l2"), abs=1e-4)


def check_both(lake: tailrace.Lake, rows: dict[int, dict[str, Any]], at: int) -> None:
    """A search by text and by a vector at once: the two have the same addresses."""
    found = lake.search("doc", text="late", vector=QUERY, limit=1000, at=at)
    held = {k for k, r in rows.items() if r["v"] is not None} | having(rows, "late")
    assert sorted(keys(found)) == sorted(held)


def snapshot_of(index: tailrace.Index, lake: tailrace.Lake, at: int) -> IndexSnapshot:
    table = lake.table("doc").info
    return index_at(lake.runtime, index.job_id, table.id, index.definition, at)


def check_tail(model: Model, indexed: int) -> None:
    """Of the newest snapshot, what is looked at beside the index is what came since."""
    lake = model.lake
    before = model.at[indexed]
    new = [k for k, row in model.rows.items() if before.get(k) is not row]
    for name in ("words", "near"):
        index = lake.index("doc", name)
        snapshot = snapshot_of(index, lake, lake.snapshot)
        assert snapshot.tail_rows == len(new), (name, indexed, lake.snapshot)
        named = sum(1 for piece in snapshot.tail if piece.file.op is Op.COMPACTION)
        counted.count("compacted files with rows that no segment has", named)


class Steps:
    """A history of a table, its indexes and its files."""

    def __init__(self, lake: tailrace.Lake, seed: int, clock: MovableClock) -> None:
        self.lake, self.random, self.clock = lake, Random(seed), clock
        self.model = Model(lake, self.random)
        self.model.make()
        lake.run_until_fresh()
        self.indexed = lake.snapshot
        self.oldest = 0

    def some(self, files: Sequence[DataFile]) -> list[DataFile]:
        return self.random.sample(files, self.random.randint(0, len(files)))

    def compact(self) -> None:
        writes = self.random.random() < 0.3
        compact(self.lake, "doc", self.some, self.model.step if writes else lambda: None)
        self.model.note()
        counted.count("compactions of a table with indexes")

    def step(self) -> None:
        self.clock.advance(HOUR)
        self.random.choice([self.model.step, self.model.step, self.compact])()
        check(self.lake, self.model.rows, freshness="latest")
        check_tail(self.model, self.indexed)
        if self.random.random() < 0.5:
            self.lake.run_until_fresh()
            self.indexed = self.lake.snapshot
        elif self.random.random() < 0.2:
            self.lake.index("doc", self.random.choice(["words", "near"])).rebuild()
        if self.random.random() < 0.4:
            self.compact()
        if self.random.random() < 0.2:
            self.oldest = self.lake.purge().horizon
        check(self.lake, self.model.at[self.indexed])
        self.check_some(2)

    def check_some(self, count: int) -> None:
        """Searches at some of the snapshots that are left."""
        every = [snapshot for snapshot in sorted(self.model.at)[1:] if snapshot >= self.oldest]
        for snapshot in self.random.sample(every, min(count, len(every))):
            check(self.lake, self.model.at[snapshot], at=snapshot)
            check_both(self.lake, self.model.at[snapshot], snapshot)


def run_history(args: LakeArgs, seed: int, steps: int) -> None:
    clock = MovableClock()
    with args.connect(settings=SETTINGS, clock=clock) as lake:
        lake.configure(snapshot_retention=Random(seed).randint(1, 6) * HOUR, object_grace=HOUR)
        history = Steps(lake, seed, clock)
        for _ in range(steps):
            history.step()
        history.check_some(1000)
        # Another process knows nothing of it but what the catalog says.
        with args.connect(settings=SETTINGS, clock=clock) as history.lake:
            history.check_some(1000)
    counted.count("histories of indexes with compactions")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_searches_equal_brute_force_across_compactions_and_purges(
    sqlite_lake_args: LakeArgs, seed: int
) -> None:
    run_history(sqlite_lake_args, seed, 12)


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 130))
def test_long_histories_with_compactions(lake_args: LakeArgs, seed: int) -> None:
    run_history(lake_args, seed, 40)


def segment_ids(lake: tailrace.Lake) -> list[int]:
    with lake.runtime.database.read() as connection:
        query = sa.select(t.segment.c.segment_id).where(t.segment.c.end_snapshot.is_(None))
        return list(connection.execute(query.order_by(t.segment.c.segment_id)).scalars())


def purge(lake: tailrace.Lake, clock: MovableClock) -> None:
    """Twice: what a purge takes out of the catalog, the next one deletes."""
    for _ in range(2):
        clock.advance(HOUR)
        lake.purge()


def fill(lake: tailrace.Lake, steps: int) -> Model:
    model = Model(lake, Random(5))
    model.make()
    for _ in range(steps):
        model.step()
    lake.run_until_fresh()
    return model


def test_an_index_follows_a_compaction_without_being_rebuilt(lake_args: LakeArgs) -> None:
    clock = MovableClock()
    with lake_args.connect(clock=clock) as lake:
        lake.configure(snapshot_retention=timedelta(0), object_grace=HOUR)
        model = fill(lake, 6)
        words = lake.index("doc", "words")
        before = segment_ids(lake)
        for _ in range(3):  # what was moved moves again
            compact(lake, "doc")
            model.note()
            lake.run_until_fresh()
            assert words.status().pending_rows == 0
            assert segment_ids(lake) == before
            check(lake, model.rows)
            assert lake.snapshot == tailrace.as_of(words.search("late"))
            purge(lake, clock)  # the files before are gone, and those between
            check(lake, model.rows, at=lake.snapshot)
        snapshot = snapshot_of(words, lake, lake.snapshot)
        assert snapshot.lost
        assert snapshot.tail == ()
        # A merge takes the rows where they are; then nothing has to be looked for.
        words.rebuild()
        snapshot = snapshot_of(words, lake, lake.snapshot)
        assert not snapshot.lost
        check(lake, model.rows)


def test_rows_that_are_not_indexed_stay_so_when_they_move(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        model = fill(lake, 3)
        words, indexed = lake.index("doc", "words"), lake.snapshot
        new = {key: new_row(model.random, key) for key in range(1000, 1010)}
        lake.table("doc").append(list(new.values()))
        model.rows.update(new)
        compact(lake, "doc")  # into files with rows of both kinds
        model.note()
        assert words.status().pending_rows == 10
        check_tail(model, indexed)
        for row in system_rows(lake.runtime, "indexes"):
            assert row["pending_rows"] == 10
        check(lake, model.rows, freshness="latest")
        check(lake, model.at[indexed])
        lake.run_until_fresh()
        assert words.status().pending_rows == 0
        assert {row["pending_rows"] for row in system_rows(lake.runtime, "indexes")} == {0}
        check(lake, model.rows)
        for snapshot in sorted(model.at)[1:]:
            check(lake, model.at[snapshot], at=snapshot)


def test_an_index_that_was_never_built_lacks_what_was_moved(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        model = Model(lake, Random(5))
        model.make()
        model.step()
        compact(lake, "doc")
        model.note()
        for row in system_rows(lake.runtime, "indexes"):
            assert row["pending_rows"] == len(model.rows)
        assert lake.index("doc", "words").status().pending_rows == len(model.rows)
        lake.run_until_fresh()
        check(lake, model.rows)


def test_what_was_taken_in_is_known_by_ids(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        table = lake.create_table("t", {"id": "int"})
        expected = {lake.snapshot: 0}
        for count in (3, 2, 4):
            table.append([{"id": number} for number in range(count)])
            expected[lake.snapshot] = max(expected.values()) + count
            compact(lake, "t")
            expected[lake.snapshot] = max(expected.values())
        with lake.runtime.database.read() as connection:
            for snapshot, number in expected.items():
                assert next_row_id(connection, table.info.id, snapshot) == number


def test_rows_without_words_are_not_looked_at_again(sqlite_lake_args: LakeArgs) -> None:
    settings = tailrace.Settings(merge_segments=2)
    with sqlite_lake_args.connect(settings=settings) as lake:
        columns = {"id": "bigint", "note": "string"}
        table = lake.create_table("doc", columns, primary_key="id")
        words = lake.create_index("doc", "words", using="fulltext", columns="note")
        for number in range(4):
            table.append([{"id": number, "note": None}])
            lake.run_until_fresh()  # and merges what has no rows
            compact(lake, "doc")
            assert snapshot_of(words, lake, lake.snapshot).tail_rows == 0
            lake.run_until_fresh()
            words.rebuild()
            assert snapshot_of(words, lake, lake.snapshot).tail_rows == 0
            assert words.status().pending_rows == 0
        table.upsert([{"id": 1, "note": "late"}])
        compact(lake, "doc")
        assert snapshot_of(words, lake, lake.snapshot).tail_rows == 1
        assert keys(words.search("late", freshness="latest")) == [1]


def test_rows_without_a_key_are_followed(sqlite_lake_args: LakeArgs) -> None:
    with sqlite_lake_args.connect() as lake:
        table = lake.create_table("doc", {"note": "string", "n": "int"})
        words = lake.create_index("doc", "words", using="fulltext", columns="note")
        for number in range(4):
            table.append([{"note": f"row{number} late", "n": number}] * 2)
            lake.run_until_fresh()
        table.delete("n = 1")
        compact(lake, "doc")
        table.delete("n = 2")
        compact(lake, "doc", lambda files: files[:1])
        found = words.search("late", freshness="latest").to_pylist()
        assert sorted((row["note"], row["n"]) for row in found) == [
            (f"row{number} late", number) for number in (0, 0, 3, 3)
        ]


def test_many_searches_in_tasks_find_rows_where_they_are(
    sqlite_lake_args: LakeArgs, spark: SparkSession
) -> None:
    with sqlite_lake_args.connect(spark=spark) as lake:
        model = fill(lake, 4)
        queries = spark.createDataFrame([(word,) for word in WORDS], "asked string")
        words = lake.index("doc", "words")
        compact(lake, "doc")
        model.step()
        compact(lake, "doc")
        model.step()
        found = words.search_many(queries, "asked", 1000, freshness="latest").collect()
        for word in WORDS:
            own = sorted(row["id"] for row in found if row["asked"] == word)
            assert own == sorted(having(model.rows, word))


def test_segments_without_ids_are_followed_by_what_the_catalog_has(
    lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a lake of before version 11."""
    from tests.catalog.test_migrate import make_older

    clock = MovableClock()
    monkeypatch.setattr(build, "write_rows", lambda *given: write_rows(*given[:4]))
    with lake_args.connect(clock=clock) as lake:
        lake.configure(snapshot_retention=timedelta(0), object_grace=HOUR)
        model = fill(lake, 4)
        model.step()  # not indexed yet
        make_older(lake, 10)
    monkeypatch.undo()
    with lake_args.connect(clock=clock) as model.lake:
        lake = model.lake
        check(lake, model.rows, freshness="latest")
        compact(lake, "doc")
        model.note()
        check(lake, model.rows, freshness="latest")
        before = segment_ids(lake)
        lake.run_until_fresh()
        assert segment_ids(lake)[: len(before)] == before
        compact(lake, "doc")
        model.note()
        purge(lake, clock)
        check(lake, model.rows)
        check(lake, model.rows, at=lake.snapshot)


def test_a_new_index_of_moved_rows_is_built_by_tasks_and_follows_them(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_LOCAL_ROWS", 100)
    monkeypatch.setattr(build, "_TASK_ROWS", 100)
    with sqlite_lake_args.connect(spark=spark) as lake:
        columns = {"id": "bigint", "note": "string"}
        table = lake.create_table("doc", columns, primary_key="id")
        for start in (0, 400):
            table.append([{"id": n, "note": f"row{n}"} for n in range(start, start + 400)])
        compact(lake, "doc")
        words = lake.create_index("doc", "words", using="fulltext", columns="note")
        words.wait()
        assert words.status().segments > 1
        table.delete("id < 100")
        for _ in range(2):
            compact(lake, "doc")
            for number in range(0, 800, 37):
                assert keys(words.search(f"row{number}", freshness="latest")) == [number] * (
                    number >= 100
                )


def test_lists_of_vectors_outlive_compactions(sqlite_lake_args: LakeArgs) -> None:
    random = Random(3)
    settings = tailrace.Settings(exact_rows=500)
    rows = {
        k: {**new_row(random, k), "v": [random.gauss(0, 1) for _ in range(6)]} for k in range(900)
    }
    with sqlite_lake_args.connect(settings=settings) as lake:
        model = Model(lake, random)
        model.make()
        table = lake.table("doc")
        table.append(list(rows.values()))
        lake.run_until_fresh()
        near = lake.index("doc", "near")

        def found() -> list[float]:
            return scores(near.search(QUERY, 20, freshness="latest"))

        for deleted in (100, 400):  # a few, and so many that segments are built anew
            compact(lake, "doc")
            assert found() == pytest.approx(nearest(rows, QUERY, 20, "l2"), abs=1e-3)
            table.delete(f"id < {deleted}")
            rows = {key: row for key, row in rows.items() if key >= deleted}
            lake.run_until_fresh()
            assert found() == pytest.approx(nearest(rows, QUERY, 20, "l2"), abs=1e-3)
        near.rebuild()
        assert found() == pytest.approx(nearest(rows, QUERY, 20, "l2"), abs=1e-3)
