"""How the job log stores a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.propagation.job import AT_REST, JobError, JobRecord, LastRun, State
from tailrace.propagation.joblog import from_row, spec_from_json, state_of, stored_state, to_row
from tailrace.propagation.spec import complete

SPEC = complete({"consumer": {"kind": "replica", "table": "copy"}, "retention": "3d"})


def stored(**values: Any) -> JobRecord:
    """A job, from the row that its fields are stored as."""
    fields: dict[str, Any] = {
        "job_id": 1,
        "tenant": "default",
        "home": "main.t",
        "name": "j",
        "kind": "replica",
        "spec": SPEC,
        "state": State.IDLE,
        "watermark": 5,
        "claim_to": None,
        "catches_up": False,
        "node": None,
        "epoch": 0,
        "lsn": 1,
        "tries": 0,
        "retry_at": None,
        "last": LastRun(),
        "created_at": None,
        "dropped_at": None,
    }
    return from_row(SimpleNamespace(**to_row(fields | values)))


@pytest.mark.parametrize("state", State)
def test_a_state_is_read_as_it_was_stored(state: State) -> None:
    watermark = None if state is State.NEW else 5
    tries = 1 if state is State.FAILING else 0
    assert stored(state=state, watermark=watermark, tries=tries).state is state


def test_jobs_at_rest_are_stored_by_the_old_word() -> None:
    assert {stored_state(state) for state in AT_REST} == {"completed"}
    assert {stored_state(s) for s in State if s not in AT_REST} == {
        "running", "error", "paused", "canceled"
    }  # fmt: skip
    assert state_of("completed", watermark=None, tries=2) is State.FAILING


def test_a_spec_keeps_all_of_its_fields() -> None:
    assert stored().spec == SPEC
    old = spec_from_json(
        '{"trigger": {"job_type": "default", "schedule": {}}, "priority": 0, "timeout": null,'
        ' "sources": [], "consumer": {"kind": "replica"}}'
    )
    assert old.retention is None  # as specs were stored before there was a retention


def test_memory_and_error_are_kept() -> None:
    last = LastRun(memory={"columns": [1]}, error=JobError(code=1, message="away", at="now"))
    assert stored(last=last).last == last
    assert stored(last=last.with_error(None)).last == LastRun(memory={"columns": [1]})


def test_an_expression_stays_what_it_is() -> None:
    expression = object()
    assert to_row({"state": expression, "epoch": expression}) == {
        "state": expression,
        "epoch": expression,
    }
    assert to_row({"node": None, "catches_up": True}) == {"node_id": None, "catches_up": 1}
