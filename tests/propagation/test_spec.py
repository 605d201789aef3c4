"""A job's spec, as users write it."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import InvalidError
from tailrace.propagation.spec import complete, updated

CONSUMER = {"kind": "replica", "table": "copy"}


def test_what_is_missing_gets_a_default() -> None:
    spec = complete({"consumer": CONSUMER, "priority": None, "trigger": {}})
    assert spec.to_dict() == {
        "trigger": {"job_type": "default", "schedule": {}},
        "priority": 0,
        "timeout": None,
        "sources": [],
        "consumer": CONSUMER,
    }
    assert spec.kind == "replica"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "a job's spec is a dict"),
        ({}, "needs a consumer"),
        ({"consumer": {"table": "copy"}}, "needs a consumer"),
        ({"consumer": CONSUMER, "owner": "me"}, "no field 'owner'"),
        ({"consumer": CONSUMER, "priority": True}, "a priority is a whole number"),
        ({"consumer": CONSUMER, "priority": 2**31}, "a priority is a whole number"),
        ({"consumer": CONSUMER, "timeout": "soon"}, "cannot read the interval"),
        ({"consumer": CONSUMER, "retention": "-1d"}, "cannot read the interval"),
        ({"consumer": CONSUMER, "sources": "orders"}, "list of table names"),
        ({"consumer": CONSUMER, "trigger": {"kind": "greedy"}}, "a trigger is"),
    ],
)
def test_a_bad_spec_is_refused(given: object, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        complete(given)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"priority": 7}, "priority", 7),
        ({"priority": None}, "priority", 3),  # empty: it keeps its value
        ({"trigger": {"job_type": "greedy"}}, "job_type", "greedy"),
        ({"consumer": {"where": "id > 1"}}, "consumer", {**CONSUMER, "where": "id > 1"}),
        ({"sources": ["orders"]}, "sources", ("orders",)),
    ],
)
def test_an_update_overwrites_what_it_names(
    change: dict[str, Any], field: str, value: object
) -> None:
    old = complete({"consumer": CONSUMER, "priority": 3, "sources": ["orders"]})
    assert getattr(updated(old, change), field) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": ["others"]}, "sources of a job cannot be changed"),
        ({"consumer": {"kind": "view"}}, "consumer of a job cannot be changed"),
    ],
)
def test_what_a_job_is_cannot_be_updated(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        updated(complete({"consumer": CONSUMER}), change)
