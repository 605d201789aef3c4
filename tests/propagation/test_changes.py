"""Reads that jobs share: which columns, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.propagation import changes
from tailrace.propagation.changes import SharedRead, SharedReads

if TYPE_CHECKING:
    from tailrace.store.runtime import Runtime

RUNTIME = cast("Runtime", None)  # nothing is read
KEY = (1, 5, 9)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[set[str] | None]:
    """The columns of each plan that is made."""
    plans: list[set[str] | None] = []

    def plan(_runtime: Runtime, _key: Any, columns: set[str] | None) -> Any:
        plans.append(columns)
        return object()

    monkeypatch.setattr(changes, "plan_range", plan)
    return plans


def test_columns_of_all_jobs_are_planned_once(planned: list[set[str] | None]) -> None:
    reads = SharedReads(RUNTIME)
    one, other = reads.acquire(KEY, ["a"]), reads.acquire(KEY, ["b"])
    assert one is other
    assert one.plan() is other.plan()
    assert planned == [{"a", "b"}]
    assert reads.acquire(KEY, ["b"]) is one  # it has that column
    assert reads.acquire((1, 6, 9), ["b"]) is not one


def test_a_job_that_needs_all_columns_gets_all(planned: list[set[str] | None]) -> None:
    reads = SharedReads(RUNTIME)
    read = reads.acquire(KEY, ["a"])
    assert reads.acquire(KEY, None) is read
    read.plan()
    assert planned == [None]
    assert reads.acquire(KEY, ["anything"]) is read


def test_a_column_that_comes_too_late_has_a_read_of_its_own(
    planned: list[set[str] | None],
) -> None:
    reads = SharedReads(RUNTIME)
    early = reads.acquire(KEY, ["a"])
    early.plan()
    late = reads.acquire(KEY, ["b"])
    assert late is not early
    late.plan()
    assert planned == [{"a"}, {"b"}]
    assert reads.acquire(KEY, ["b"]) is late


@pytest.mark.usefixtures("planned")
def test_the_last_user_ends_a_read() -> None:
    reads = SharedReads(RUNTIME)
    read = reads.acquire(KEY, ["a"])
    reads.acquire(KEY, ["a"])
    reads.release(read)
    assert reads.acquire(KEY, ["a"]) is read
    reads.release(read)
    reads.release(read)
    assert reads.acquire(KEY, ["a"]) is not read


def test_a_plan_that_is_known_is_not_looked_up() -> None:
    feed: Any = object()
    assert SharedRead(RUNTIME, lambda _columns: feed).plan() is feed
