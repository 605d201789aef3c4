"""How far a job is: every door gives the same answer, and none says more than is true."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.propagation import joblog
from tailrace.propagation.freshness import Freshness, is_fresh, last_changes
from tailrace.propagation.job_cache import JobCache, read_news
from tailrace.sql.listings import system_rows
from tests.support.compaction import compact
from tests.support.jobs import spec
from tests.support.seeds import seed

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs


@tailrace.consumer("reads_nothing")
def reads_nothing(changes: tailrace.Changes, txn: tailrace.Transaction, job: object) -> None:
    """Only moves its watermark."""


FOLLOW = spec("reads_nothing")


@pytest.mark.parametrize(
    ("watermark", "changes", "fresh"),
    [
        (None, [], False),
        (None, [0], False),
        (3, [], True),
        (3, [3, 1], True),
        (3, [3, 4], False),
        (3, [3, None], False),
    ],
)
def test_fresh_is_what_reflects_the_last_change_of_every_source(
    watermark: int | None, changes: list[int | None], *, fresh: bool
) -> None:
    assert is_fresh(watermark, changes) is fresh


def doors(lake: tailrace.Lake) -> dict[str, tuple[int | None, bool]]:
    """Watermark and freshness of every job by its name, which every door has to give."""
    found = {job.name: (job.watermark, job.is_fresh) for job in lake.jobs.list()}
    table = system_rows(lake.runtime, "freshness")
    assert {row["name"]: (row["watermark"], row["lag_snapshots"] == 0) for row in table} == found
    cache = JobCache()
    with lake.runtime.database.read_at_once() as connection:
        freshness = Freshness(connection, joblog.records(connection))
        newest = read_news(connection, 0, -1).newest
        jobs = joblog.with_sources(connection, read_news(connection, 0, -1).jobs)
        cache.apply(jobs)
        sources = {table for job, _ in jobs for table in job.sources}
        cache.change(last_changes(connection, sources), newest)
        for record in joblog.records(connection):
            assert freshness.is_fresh(record) == found[record.name][1]
            entry = cache.entries[record.id]
            if found[record.name][1]:
                assert cache.effective(entry) == found[record.name][0]
    return found


def test_deletes_that_share_a_file_hold_the_watermark_back(lake_args: LakeArgs) -> None:
    """A file of deletes says when its first and its last row went, and not what lies between."""
    with lake_args.connect() as lake:
        table = lake.create_table("orders", {"id": "int"})
        table.append([{"id": n} for n in range(5)])
        lake.jobs.register("orders", "follow", FOLLOW)
        table.delete("id = 0")
        lake.run_until_fresh()
        reached = lake.snapshot
        assert doors(lake) == {"follow": (reached, True)}
        table.delete("id = 1")  # into the file of the first
        table.append([{"id": 7}])
        assert doors(lake) == {"follow": (reached, False)}


def test_deletes_that_a_compaction_takes_over_hold_no_watermark_back(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        table = lake.create_table("orders", {"id": "int"})
        table.append([{"id": n} for n in range(5)])
        lake.jobs.register("orders", "follow", FOLLOW)
        lake.run_until_fresh()

        def delete_and_follow() -> None:
            table.delete("id = 0")
            lake.run_until_fresh()

        compact(lake, "orders", meanwhile=delete_and_follow)
        reached = lake.snapshot
        assert doors(lake) == {"follow": (reached, True)}
        table.append([{"id": 7}])
        assert doors(lake) == {"follow": (reached, False)}


def test_a_job_whose_source_was_dropped_is_not_fresh(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        lake.create_table("orders", {"id": "int"}).append([{"id": 1}])
        lake.jobs.register("orders", "follow", FOLLOW)
        lake.run_until_fresh()
        lake.create_table("other", {"id": "int"})
        assert doors(lake) == {"follow": (lake.snapshot, True)}
        reached = lake.snapshot
        lake.drop_table("orders")
        assert doors(lake) == {"follow": (reached, False)}
        lake.create_table("another", {"id": "int"})
        assert doors(lake) == {"follow": (reached, False)}


@pytest.mark.parametrize("number", range(3))
def test_every_door_says_the_same_after_random_changes(lake_args: LakeArgs, number: int) -> None:
    random = Random(f"{seed()}/{number}")
    with lake_args.connect() as lake:
        tables = [lake.create_table(name, {"id": "int"}) for name in ("a", "b", "c")]
        for name, sources in (("one", "a"), ("two", "ab"), ("three", "bc"), ("four", "c")):
            lake.jobs.register(sources[0], name, {**FOLLOW, "sources": list(sources)})
        reflected: dict[str, int | None] = {}
        for _ in range(25):
            what, table = random.random(), random.choice(tables)
            if what < 0.35:
                table.append([{"id": random.randrange(5)} for _ in range(3)])
            elif what < 0.6:
                table.delete(f"id = {random.randrange(5)}")
            elif what < 0.7:
                compact(lake, table.name, lambda files: random.sample(files, len(files) // 2))
            elif what < 0.8:
                lake.jobs.pause("c", "four")
            elif what < 0.9:
                lake.jobs.resume("c", "four")
            else:
                lake.run_until_fresh()
            for name, (watermark, _) in doors(lake).items():
                before = reflected.get(name)
                assert before is None or (watermark is not None and watermark >= before), name
                reflected[name] = watermark
