"""Siblings that have little to do share a commit, and do not suffer by each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.propagation import iteration
from tailrace.propagation import tables as t
from tailrace.propagation.consumer import find_consumer
from tests.support.jobs import Recorder, orders, replica, same, spec
from tests.support.steps import stepped_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.lakes import LakeArgs

COPIES = [f"copy{number:02}" for number in range(20)]


@pytest.fixture
def lake(lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch) -> Iterator[tailrace.Lake]:
    """A table with twenty replicas that are fresh."""
    monkeypatch.setattr(iteration, "_PATIENCE", 3600.0)  # however slow the machine is
    with lake_args.connect() as lake:
        orders(lake)
        for name in COPIES:
            lake.jobs.register("orders", name, replica(name))
        lake.run_until_fresh()
        yield lake


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Have something done each time that a replica runs, with the name of its job."""
    consumer = find_consumer("replica")
    assert consumer is not None
    run = consumer.run

    def do(what: Callable[[str], None]) -> None:
        def running(changes: Any, txn: Any, job: Any) -> str | None:
            what(job.name)
            return run(changes, txn, job)

        monkeypatch.setattr(consumer, "run", running)

    return do


def change(lake: tailrace.Lake) -> None:
    lake.table("orders").upsert([{"id": 1, "v": "changed"}, {"id": 99, "v": "new"}])


def last_runs(lake: tailrace.Lake) -> dict[str, list[str | None]]:
    """The errors of each copy's iterations after its first."""
    return {
        name: [done.error for done in lake.jobs.history("orders", name) if done.kind == "tail"]
        for name in COPIES
    }


def test_a_change_takes_few_commits(lake: tailrace.Lake) -> None:
    change(lake)
    before = lake.snapshot
    lake.run_until_fresh()
    # The first reads what the others need; of these, sixteen share a commit.
    assert lake.snapshot - before == 3
    assert all(same(lake, "orders", name) for name in COPIES)
    assert last_runs(lake) == {name: [None] for name in COPIES}
    done = [lake.jobs.history("orders", name, limit=1)[0] for name in COPIES]
    assert {(one.to_snapshot, one.rows_read, one.rows_written) for one in done} == {(before, 3, 3)}
    with lake.runtime.database.read() as connection:
        made = connection.execute(sa.select(t.version).where(t.version.c.label == before)).all()
        numbers = connection.execute(sa.select(t.job.c.lsn)).scalars().all()
    assert len({row.table_id for row in made}) == len(made) == len(COPIES)
    assert len(set(numbers)) == len(COPIES)


def test_a_sibling_that_takes_long_holds_nobody_up(
    lake: tailrace.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iteration, "_PATIENCE", -1.0)  # each of them takes too long
    change(lake)
    before = lake.snapshot
    lake.run_until_fresh()
    assert lake.snapshot - before == len(COPIES)
    assert all(same(lake, "orders", name) for name in COPIES)


def test_one_that_fails_fails_alone(
    lake: tailrace.Lake, during: Callable[[Callable[[str], None]], None]
) -> None:
    def fail(name: str) -> None:
        if name == "copy07":
            raise RuntimeError("no such luck")

    during(fail)
    change(lake)
    with pytest.raises(tailrace.JobFailedError, match=r"1 of the jobs .* no such luck"):
        lake.run_until_fresh()
    others = [name for name in COPIES if name != "copy07"]
    assert all(same(lake, "orders", name) for name in others)
    assert not same(lake, "orders", "copy07")
    errors = last_runs(lake)
    assert {name: errors[name] for name in others} == {name: [None] for name in others}
    assert set(errors["copy07"]) == {"RuntimeError: no such luck"}
    assert lake.jobs.status("orders", "copy07").tries == len(errors["copy07"])


def test_one_that_is_stopped_meanwhile_is_left_out(
    lake: tailrace.Lake, during: Callable[[Callable[[str], None]], None]
) -> None:
    canceled = []

    def cancel(name: str) -> None:
        if name == "copy12" and not canceled:
            canceled.append("copy05")
            lake.jobs.cancel("orders", "copy05")  # which has run, and is not committed

    during(cancel)
    change(lake)
    lake.run_until_fresh()
    assert canceled
    assert [name for name in COPIES if not same(lake, "orders", name)] == canceled
    assert last_runs(lake) == {name: [] if name in canceled else [None] for name in COPIES}
    lake.jobs.resume("orders", "copy05")
    lake.run_until_fresh()
    assert same(lake, "orders", "copy05")


def test_a_table_that_another_changes_meanwhile_is_tried_again_by_itself(
    lake: tailrace.Lake, during: Callable[[Callable[[str], None]], None]
) -> None:
    committed = []

    def commit(name: str) -> None:
        if name == "copy09" and not committed:
            committed.append(name)
            change(lake)  # a commit in between

    during(commit)
    change(lake)
    lake.run_until_fresh()
    assert all(same(lake, "orders", name) for name in COPIES)


def test_a_consumer_of_the_users_commits_alone(lake: tailrace.Lake) -> None:
    recorder = Recorder(lake)
    with stepped_node(lake) as node:
        lake.jobs.register("orders", "own", spec(recorder.kind))
        node.until_fresh()
        assert len(recorder.runs) == 1
        change(lake)
        before = lake.snapshot
        node.until_fresh()
    assert lake.snapshot - before == 4
    assert len(recorder.runs) == 2
    assert all(same(lake, "orders", name) for name in COPIES)
