"""What is read here, and what is left to Spark."""

from __future__ import annotations

import pytest

from tailrace.settings import Settings
from tailrace.store.scan import Budget, Cost

BUDGET = Budget.of(Settings(local_rows=100, local_bytes=1000, local_keys=500))


@pytest.mark.parametrize(
    ("cost", "here"),
    [
        (Cost(rows=100, size=1000), True),
        (Cost(rows=101, size=0), False),
        (Cost(rows=0, size=1001), False),
        (Cost(rows=1, size=1, searched=500), True),
        (Cost(rows=1, size=1, searched=501), False),
    ],
)
def test_every_part_of_a_cost_has_its_limit(cost: Cost, here: bool) -> None:
    assert BUDGET.covers(cost) is here


def test_who_can_hold_more_rows_still_reads_no_more_bytes() -> None:
    more = BUDGET.for_rows(10_000)
    assert more.covers(Cost(rows=10_000, size=1000))
    assert not more.covers(Cost(rows=10_000, size=1001))


def test_a_limit_below_zero_leaves_even_nothing_to_spark() -> None:
    nothing = Budget.of(Settings(local_rows=-1, local_keys=-1))
    assert not nothing.covers(Cost(rows=0, size=0))
    assert not nothing.covers_search(0)


def test_rows_are_decoded_to_be_held_or_to_be_searched() -> None:
    assert Cost(rows=5, size=1).decoded == 5
    assert Cost(rows=5, size=1, searched=900).decoded == 900
