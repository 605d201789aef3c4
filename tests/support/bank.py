"""What processes do that write to one lake at once: bank transfers, and a race for keys."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tailrace
from tests.support.compaction import compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.lakes import LakeArgs

ACCOUNTS, BALANCE = 12, 1000


@dataclass(kw_only=True)
class Report:
    """What one process has seen."""

    worker: int
    done: list[Any] = field(default_factory=list)  # what it committed
    refused: Counter[str] = field(default_factory=Counter)  # our errors, by their class
    failed: str = ""  # any other error


def make(lake: tailrace.Lake) -> None:
    """The tables of the bank."""
    account = lake.create_table("account", {"id": "int", "balance": "bigint"}, primary_key="id")
    account.append([{"id": number, "balance": BALANCE} for number in range(ACCOUNTS)])
    columns = {"worker": "int", "number": "int", "source": "int", "target": "int", "amount": "int"}
    lake.create_table("transfer", columns)


def transfer(args: LakeArgs, worker: int, transfers: int, ready: Any, reports: Any) -> None:
    """Move money between accounts, so many times."""
    report = Report(worker=worker)
    try:
        chance = random.Random(worker)
        with args.connect() as lake:
            # All have read the same balances before the first of them writes: one of them wins.
            _move(lake, report, 0, 1, 1, meanwhile=ready.wait)
            for _ in range(transfers - 1):
                source, target = chance.sample(range(ACCOUNTS), 2)
                _move(lake, report, source, target, chance.randint(1, 100))
    except Exception:  # noqa: BLE001  (told in the test)
        report.failed = traceback.format_exc()
        ready.abort()
    reports.put(report)


def _move(
    lake: tailrace.Lake,
    report: Report,
    source: int,
    target: int,
    amount: int,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    row = {
        "worker": report.worker,
        "number": len(report.done),
        "source": source,
        "target": target,
        "amount": amount,
    }
    # The retry is the caller's: the whole transaction, reads included.
    while True:
        try:
            with lake.transaction() as txn:
                account = txn.table("account")
                rows = account.to_arrow().to_pylist()
                if meanwhile is not None:
                    meanwhile, wait = None, meanwhile
                    wait()
                balances = {entry["id"]: entry["balance"] for entry in rows}
                balances[source] -= amount
                balances[target] += amount
                changed = [{"id": n, "balance": balances[n]} for n in (source, target)]
                account.upsert(changed)
                txn.table("transfer").append([row])
        except tailrace.ConflictError:
            report.refused["ConflictError"] += 1
        else:
            report.done.append(tuple(row.values()))
            return


def compact_all(args: LakeArgs, began: Any, stop: Any, reports: Any) -> None:
    """Compact the tables of the bank over and over, until told to stop."""
    report = Report(worker=-1)
    try:
        with args.connect() as lake:
            while not stop.is_set():
                for name in ("account", "transfer"):
                    try:
                        compact(lake, name)
                        report.done.append(name)
                    except tailrace.ConflictError:
                        report.refused["ConflictError"] += 1
                began.set()
    except Exception:  # noqa: BLE001  (told in the test)
        report.failed = traceback.format_exc()
    reports.put(report)


def race(args: LakeArgs, worker: int, keys: int, ready: Any, reports: Any) -> None:
    """Append the same keys as everybody else, one after the other."""
    report = Report(worker=worker)
    try:
        with args.connect() as lake:
            table = lake.table("race")
            for key in range(keys):
                ready.wait()
                try:
                    table.append([{"id": key, "worker": worker}])
                except (tailrace.ConflictError, tailrace.InvalidError) as error:
                    report.refused[type(error).__name__] += 1
                else:
                    report.done.append(key)
    except Exception:  # noqa: BLE001  (told in the test)
        report.failed = traceback.format_exc()
        ready.abort()
    reports.put(report)
