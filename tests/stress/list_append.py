"""Transactions that append to lists, and a checker of what they saw and left.

Each value is appended once, so that a list tells who wrote it, and in which order. Snapshots are
numbered and can all be read again, so that the checker needs no search: a transaction that read at
`base` and committed as `snapshot` must have seen exactly the lists of `base`, and must be the only
difference between `snapshot - 1` and `snapshot`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tailrace

if TYPE_CHECKING:
    from tests.support.lakes import LakeArgs

KEYS = 12
Lists = dict[int, tuple[str, ...]]  # by key


class Ended(StrEnum):
    """What a writer was told of its transaction."""

    COMMITTED = "committed"
    FAILED = "failed"  # nothing was done
    UNKNOWN = "unknown"
    KILLED = "killed"  # nobody was there to be told


@dataclass(kw_only=True)
class Attempt:
    """One transaction, as its writer saw it."""

    id: str
    base: int
    reads: Lists
    appends: dict[int, str]
    ended: Ended = Ended.KILLED
    snapshot: int | None = None


def make(lake: tailrace.Lake) -> None:
    """The lists, all empty; and a table without a key, where a retry could write twice."""
    lists = lake.create_table("lists", {"k": "bigint", "items": "string"}, primary_key="k")
    lists.append([{"k": k, "items": ""} for k in range(KEYS)])
    lake.create_table("log", {"value": "string"})


def write(args: LakeArgs, worker: str, seed: int, log: str, stop: Any) -> None:
    """Append to random lists until told to stop; a process's work."""
    random = Random(seed)
    # Who does not wait for the database is told more often that an outcome is not known.
    patience = tailrace.Settings(lock_timeout=timedelta(seconds=random.choice([0.5, 3, 30])))
    number = 0
    with Path(log).open("a") as file:
        while not stop.is_set():
            try:
                with args.connect(settings=patience) as lake:
                    while not stop.is_set():
                        number += 1
                        _attempt(lake, random, f"{worker}.{number}", file)
            except (tailrace.UnavailableError, tailrace.CommitUnknownError):
                stop.wait(0.05)  # the database is away


def _attempt(lake: tailrace.Lake, random: Random, value: str, file: Any) -> None:
    def say(**facts: Any) -> None:
        file.write(json.dumps(facts) + "\n")
        file.flush()

    txn = lake.transaction()
    table = txn.table("lists")
    known = {row["k"]: row["items"] for row in table.to_arrow().to_pylist()}
    picked = random.sample(range(KEYS), 4)
    reads, targets = picked[:2], picked[2 : 2 + random.choice([0, 1, 1, 2])]
    changed = [{"k": k, "items": f"{known[k]} {value}".strip()} for k in targets]
    say(
        id=txn.id,
        base=txn.base,
        reads={k: known[k].split() for k in (*reads, *targets)},
        appends=dict.fromkeys(targets, value),
    )
    if changed:
        table.upsert(changed)
        txn.table("log").append([{"value": value}])
    try:
        say(id=txn.id, ended=Ended.COMMITTED, snapshot=txn.commit())
    except tailrace.CommitUnknownError:
        say(id=txn.id, ended=Ended.UNKNOWN)
        raise
    except (tailrace.ConflictError, tailrace.UnavailableError) as error:
        say(id=txn.id, ended=Ended.FAILED)
        if isinstance(error, tailrace.UnavailableError):
            raise


def read_logs(logs: Iterable[Path]) -> list[Attempt]:
    """What all writers noted. A line that a kill has cut short is no line."""
    found: dict[str, Attempt] = {}
    for log in logs:
        for line in log.read_text().splitlines():
            try:
                facts = json.loads(line)
            except ValueError:
                continue
            if "base" in facts:
                reads = {int(k): tuple(items) for k, items in facts["reads"].items()}
                appends = {int(k): value for k, value in facts["appends"].items()}
                found[facts["id"]] = Attempt(
                    id=facts["id"], base=facts["base"], reads=reads, appends=appends
                )
            else:
                attempt = found[facts["id"]]
                attempt.ended = Ended(facts["ended"])
                attempt.snapshot = facts.get("snapshot")
    return list(found.values())


@dataclass
class History:
    """The lists at every snapshot, and the rows of the log at the end."""

    at: Mapping[int, Lists]
    log: Counter[str] = field(default_factory=Counter)


def read_history(lake: tailrace.Lake, first: int) -> History:
    """Read all snapshots since the lists were made."""
    table = lake.table("lists")
    at = {
        snapshot: {
            row["k"]: tuple(row["items"].split()) for row in table.to_arrow(at=snapshot).to_pylist()
        }
        for snapshot in range(first, lake.snapshot + 1)
    }
    log = Counter(lake.table("log").to_arrow().column("value").to_pylist())
    return History(at, log)


def check(attempts: Iterable[Attempt], history: History) -> list[str]:
    """What is wrong: nothing, under snapshot isolation."""
    wrong: list[str] = []
    last = history.at[max(history.at)]
    held = Counter(value for items in last.values() for value in items)
    made = _writers(history)
    for attempt in attempts:
        for key, seen in attempt.reads.items():
            if attempt.base in history.at and history.at[attempt.base][key] != seen:
                wrong.append(f"{attempt.id} read {key} as it never was at {attempt.base}")
        values = set(attempt.appends.values())
        for value in values:
            wanted = len(attempt.appends) if value in held else 0
            if held[value] != wanted or history.log[value] != bool(wanted):
                wrong.append(f"{value} is torn, doubled or lost: {held[value]} of {wanted}")
        is_there = any(value in held for value in values)
        if attempt.ended is Ended.COMMITTED and values:
            if not is_there:
                wrong.append(f"{attempt.id} was committed and is lost")
            elif {made[value] for value in values} != {attempt.snapshot}:
                wrong.append(f"{attempt.id} is not the snapshot that it was told")
            else:
                wrong += _overwritten(attempt, history)
        if attempt.ended is Ended.FAILED and is_there:
            wrong.append(f"{attempt.id} was said to have failed, and is there")
    return wrong + _lost(history)


def _writers(history: History) -> dict[str, int]:
    """The snapshot that brought each value."""
    made: dict[str, int] = {}
    for snapshot in sorted(history.at):
        for items in history.at[snapshot].values():
            for value in items:
                made.setdefault(value, snapshot)
    return made


def _overwritten(attempt: Attempt, history: History) -> list[str]:
    """Between its base and its commit, nobody else may have written what it wrote."""
    assert attempt.snapshot is not None
    before = history.at.get(attempt.snapshot - 1)
    return [
        f"{attempt.id} wrote over a change of {key} that it had not seen"
        for key in attempt.appends
        if before is not None and before[key] != attempt.reads[key]
    ]


def _lost(history: History) -> list[str]:
    """A list only ever grows."""
    found = []
    for snapshot in sorted(history.at)[1:]:
        for key, items in history.at[snapshot].items():
            before = history.at[snapshot - 1][key]
            if items[: len(before)] != before:
                found.append(f"list {key} lost something at {snapshot}")
    return found
