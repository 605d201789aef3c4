"""Many processes write to one lake at once, and nothing is lost, doubled or half seen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import bank, children, counted, duck
from tests.support.bank import Report
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Callable

    import tailrace
    from tests.support.lakes import LakeArgs

# How many transfers each process makes.
TRANSFERS = [10, pytest.param(150, marks=[pytest.mark.stress, pytest.mark.timeout(1200)])]
PROCESSES = {"postgres": 8, "sqlite": 4}


def run(
    work: Callable[..., None], args: LakeArgs, count: int, *arguments: Any, timeout: float = 60.0
) -> list[Report]:
    """Let so many processes do the same work at once."""
    context = children.context()
    ready, queue = context.Barrier(count, timeout=60), context.Queue()
    started = [
        children.start(work, args, worker, *arguments, ready, queue) for worker in range(count)
    ]
    reports = [queue.get(timeout=timeout) for _ in started]
    for child in started:
        assert children.join(child) == 0
    assert not [report.failed for report in reports if report.failed]
    return reports


@pytest.mark.parametrize("transfers", TRANSFERS)
def test_bank_transfers_keep_the_sum_and_lose_nothing(lake_args: LakeArgs, transfers: int) -> None:
    with lake_args.connect() as lake:
        bank.make(lake)
        first = lake.snapshot
        count = PROCESSES[lake_args.catalog]
        reports = run(bank.transfer, lake_args, count, transfers, timeout=60 + 6.0 * transfers)
        done = [moved for report in reports for moved in report.done]
        refused = sum((report.refused for report in reports), Counter[str]())
        counted.count(f"transfers of {count} processes at once, {lake_args.catalog}", len(done))
        assert len(done) == count * transfers
        assert refused["ConflictError"] >= count - 1
        # A transfer is a snapshot, and every one is in the log once.
        assert lake.snapshot == first + len(done)
        assert bag(lake.table("transfer").to_arrow()) == sorted(done)
        assert bag(lake.table("account").to_arrow()) == sorted(balances(done).items())
        check_every_snapshot(lake_args, lake, first, done)


@pytest.mark.parametrize("transfers", TRANSFERS)
@pytest.mark.parametrize("writers", [1, 3])
def test_transfers_beside_compactions_lose_nothing(
    lake_args: LakeArgs, writers: int, transfers: int
) -> None:
    with lake_args.connect() as lake:
        bank.make(lake)
        first = lake.snapshot
        context = children.context()
        began, stop, told = context.Event(), context.Event(), context.Queue()
        child = children.start(bank.compact_all, lake_args, began, stop, told)
        assert began.wait(timeout=60)
        reports = run(bank.transfer, lake_args, writers, transfers, timeout=60 + 6.0 * transfers)
        stop.set()
        compactor = told.get(timeout=60)
        assert children.join(child) == 0
        assert not compactor.failed
        assert len(compactor.done) > 1
        done = [moved for report in reports for moved in report.done]
        assert len(done) == writers * transfers
        assert bag(lake.table("transfer").to_arrow()) == sorted(done)
        assert bag(lake.table("account").to_arrow()) == sorted(balances(done).items())
        for at in range(first, lake.snapshot + 1):
            rows = bag(lake.table("account").to_arrow(at=at))
            assert sum(balance for _, balance in rows) == bank.ACCOUNTS * bank.BALANCE
        if writers == 1:
            # Nobody was in its way: a compaction is in nobody's way.
            assert not [report.refused for report in reports if report.refused]


def balances(done: list[tuple[int, ...]]) -> dict[int, int]:
    result = dict.fromkeys(range(bank.ACCOUNTS), bank.BALANCE)
    for _, _, source, target, amount in done:
        result[source] -= amount
        result[target] += amount
    return result


def check_every_snapshot(
    lake_args: LakeArgs, lake: tailrace.Lake, first: int, done: list[tuple[int, ...]]
) -> None:
    """The sum is constant at each: in DuckDB's change feed, and as DuckDB and we read it."""
    total, newest = bank.ACCOUNTS * bank.BALANCE, lake.snapshot
    with duck.attach(lake_args) as reader:
        feed = reader.execute(
            f"""
            SELECT snapshot_id, count(*),
              sum(CASE WHEN change_type IN ('insert', 'update_postimage')
                  THEN balance ELSE -balance END)
            FROM ducklake_table_changes('lake', 'main', 'account', {first + 1}, {newest})
            GROUP BY ALL
            """
        ).fetchall()
        assert sorted(feed) == [(at, 4, 0) for at in range(first + 1, newest + 1)]
        for at in range(first, newest + 1):
            rows = bag(lake.table("account").to_arrow(at=at))
            assert len(rows) == bank.ACCOUNTS
            assert sum(balance for _, balance in rows) == total
        for at in range(first, newest + 1, 1 + len(done) // 20):
            assert bag(duck.read(reader, "account", at)) == bag(
                lake.table("account").to_arrow(at=at)
            )


def test_a_race_for_keys_has_one_winner_for_each(lake_args: LakeArgs) -> None:
    keys, count = 20, PROCESSES[lake_args.catalog]
    with lake_args.connect() as lake:
        table = lake.create_table("race", {"id": "int", "worker": "int"}, primary_key="id")
        before = lake.snapshot
        reports = run(bank.race, lake_args, count, keys)
        won = [(key, report.worker) for report in reports for key in report.done]
        assert bag(table.to_arrow()) == sorted(won)
        assert [key for key, _ in sorted(won)] == list(range(keys))
        refused = sum((report.refused for report in reports), Counter[str]())
        assert sum(refused.values()) == keys * (count - 1)
        assert refused["ConflictError"] > 0
        assert lake.snapshot == before + keys
