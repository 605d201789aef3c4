"""Which strategy a refresh takes, by what is known before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import InvalidError
from tailrace.views.refresh.choose import (
    Choice,
    Facts,
    Strategy,
    choose,
    history_name,
    is_monotone,
    plain_cost,
)
from tests.views.plain import definition, layout

ROWS = "SELECT a, b FROM t WHERE b > 0"
SUMS = "SELECT a, sum(b) AS total FROM t GROUP BY a"
DISTINCT_VALUES = "SELECT a, count(DISTINCT b) AS n FROM t GROUP BY a"


def facts(**given: Any) -> Facts:
    known: dict[str, Any] = {
        "sizes": {"main.t": 10_000_000, "main.u": 10_000_000},
        "changes": {"main.t": 10},
        "decoded": 10,
        "inserts_only": False,
        "in_memory": True,
    }
    return Facts(**(known | given))


def chosen(query: str, policy: str = "auto", **given: Any) -> Choice:
    return choose(definition(query), facts(**given), policy)


def reasons(choice: Choice) -> dict[str, str]:
    return {str(option.strategy): option.reason for option in choice.options}


@pytest.mark.parametrize(
    ("query", "strategy"),
    [(ROWS, Strategy.ROWS), (SUMS, Strategy.MERGE), (DISTINCT_VALUES, Strategy.KEYS)],
)
def test_a_small_change_takes_the_way_that_the_layout_allows(
    query: str, strategy: Strategy
) -> None:
    assert chosen(query).strategy is strategy


def test_rows_that_only_come_are_appended() -> None:
    assert chosen(ROWS, inserts_only=True).strategy is Strategy.APPEND
    assert reasons(chosen(ROWS))["append"] == "rows were deleted or updated"


def test_a_change_of_everything_is_computed_in_full() -> None:
    most = {"main.t": 10_000_000}
    assert chosen(ROWS, changes=most, decoded=10_000_000, in_memory=False).strategy is Strategy.FULL


def test_a_policy_says_what_is_allowed() -> None:
    assert chosen(ROWS, "full").strategy is Strategy.FULL
    most = {"main.t": 10_000_000}
    kept = chosen(ROWS, "incremental", changes=most, decoded=10_000_000, in_memory=False)
    assert kept.strategy is Strategy.ROWS


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"rebuild": True}, "no longer kept"),
        ({"refused": "Spark refuses: x"}, "Spark refuses"),
        ({"moved": True}, "moved on"),
    ],
)
def test_what_rules_out_changes_leaves_nothing_but_all(given: dict[str, Any], why: str) -> None:
    assert chosen(ROWS, **given).strategy is Strategy.FULL
    with pytest.raises(InvalidError, match=why):
        chosen(ROWS, "incremental", **given)


def test_a_query_without_rules_is_computed_in_full() -> None:
    choice = chosen("SELECT rand() AS r FROM t")
    assert choice.strategy is Strategy.FULL
    assert "rand()" in reasons(choice)["rows"]


def test_a_strategy_that_took_longer_than_predicted_counts_as_dearer() -> None:
    before = chosen(ROWS)
    slow = {history_name(Strategy.ROWS, facts()): [0.1, 0.3]}
    assert chosen(ROWS, "incremental", history=slow).cost == pytest.approx(3 * before.cost)
    elsewhere = {history_name(Strategy.ROWS, facts(in_memory=False)): [0.1, 0.3]}
    assert chosen(ROWS, "incremental", history=elsewhere).cost == pytest.approx(before.cost)


def test_one_slow_run_is_believed_only_so_far() -> None:
    history = {history_name(Strategy.ROWS, facts()): [0.001, 1_000.0]}
    slow, before = chosen(ROWS, "incremental", history=history), chosen(ROWS)
    assert slow.cost == pytest.approx(10 * before.cost)


def test_more_changes_cost_more() -> None:
    made = definition("SELECT t.a, u.b FROM t JOIN u ON u.id = t.a")
    costs = [
        plain_cost(made, facts(changes={"main.t": rows}, decoded=rows), Strategy.ROWS)
        for rows in (1, 1_000, 1_000_000)
    ]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


GROWS = [
    ROWS,
    "SELECT t.a, u.b FROM t JOIN u ON u.id = t.a",
    "SELECT a FROM t UNION ALL SELECT b FROM u",
    "SELECT a FROM t UNION ALL SELECT 1",
    "SELECT t.a FROM t JOIN (VALUES (1), (2)) AS v(n) ON v.n = t.a",
    "SELECT a, n FROM t LATERAL VIEW explode(array(a, b)) e AS n",
]
MAY_SHRINK = [
    "SELECT t.a, u.b FROM t LEFT JOIN u ON u.id = t.a",
    "SELECT t.a, u.b FROM t FULL JOIN u ON u.id = t.a",
    "SELECT a FROM t LEFT ANTI JOIN u ON u.id = t.a",
    "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.a)",
    "SELECT a FROM t EXCEPT SELECT a FROM u",
    "SELECT a, rank() OVER (PARTITION BY a ORDER BY b) AS r FROM t",
    "SELECT t.a, q.n FROM t JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) q ON q.a = t.a",
    "SELECT t.a FROM t JOIN (SELECT a FROM u ORDER BY b LIMIT 3) q ON q.a = t.a",
]


@pytest.mark.parametrize("query", GROWS)
def test_a_query_that_only_grows_is_appended_to(query: str) -> None:
    assert chosen(query, inserts_only=True).strategy is Strategy.APPEND
    assert is_monotone(layout(query).root)


@pytest.mark.parametrize("query", MAY_SHRINK)
def test_a_query_that_can_lose_rows_to_new_ones_is_not_appended_to(query: str) -> None:
    both = {"main.t": 10, "main.u": 10}
    choice = chosen(query, "incremental", changes=both, inserts_only=True)
    assert choice.strategy is not Strategy.APPEND
    assert reasons(choice)["append"] == "a new row can change or remove another row of the result"
    assert not is_monotone(layout(query).root)
