"""How results are stored, and which way they are kept up."""

from __future__ import annotations

import pytest

from tailrace.views.incremental.layout import ROWS, VISIBLE, Way
from tests.views.plain import definition, layout


@pytest.mark.parametrize(
    ("query", "way"),
    [
        ("SELECT a, b FROM t WHERE b > 0", Way.BAG),
        ("SELECT DISTINCT a FROM t", Way.MERGE),
        ("SELECT a, sum(b) AS s, min(d) AS m, avg(b) AS v FROM t GROUP BY a", Way.MERGE),
        ("SELECT count(*) AS n FROM t", Way.MERGE),
        ("SELECT a, sum(x) AS s FROM t GROUP BY a", Way.KEYS),
        ("SELECT a, count(DISTINCT b) AS n FROM t GROUP BY a", Way.KEYS),
        ("SELECT a, s, sum(x) OVER (PARTITION BY a) AS w FROM t", Way.KEYS),
    ],
)
def test_the_way_follows_from_the_last_operator(query: str, way: Way) -> None:
    assert layout(query).way is way


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT sum(x) AS s FROM t", "floating-point"),
        ("SELECT count(DISTINCT b) AS n FROM t", "cannot be added up"),
        ("SELECT s, count(*) AS n FROM (SELECT sum(x) AS s FROM t GROUP BY a) AS q GROUP BY s",
         "groups by sums of floating-point numbers"),
    ],
)  # fmt: skip
def test_what_has_no_way_says_why(query: str, reason: str) -> None:
    made = definition(query)
    assert made.layout is None
    assert reason in made.reason


def hidden(query: str) -> list[str]:
    return [column.name for column in layout(query).columns if column.hidden]


def test_what_sums_and_averages_need_is_stored_beside_them() -> None:
    assert hidden("SELECT a, count(*) AS n FROM t GROUP BY a") == [ROWS]
    of_sum = hidden("SELECT a, sum(d) AS s FROM t GROUP BY a")
    assert [name[-2:] for name in of_sum if name != ROWS] == ["s0", "n0"]
    of_average = hidden("SELECT a, avg(b) AS v FROM t GROUP BY a")
    assert {name[-2:] for name in of_average if name != ROWS} == {"s0", "n0", "a0"}


def test_a_key_that_is_not_shown_is_stored_all_the_same() -> None:
    assert "_tailrace_k0" in hidden("SELECT count(*) AS n FROM t GROUP BY a")
    assert "_tailrace_k0" not in hidden("SELECT a, count(*) AS n FROM t GROUP BY a")


def test_having_hides_groups_rather_than_dropping_them() -> None:
    assert VISIBLE in hidden("SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1")


def test_a_limit_at_the_end_is_left_to_the_reader() -> None:
    made = layout("SELECT a, b FROM t ORDER BY s LIMIT 3")
    assert made.limit is not None
    assert made.limit.count == 3
    assert [column.name for column in made.columns if column.hidden] == ["_tailrace_o0"]
    assert not made.is_plain


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SELECT a, b FROM t", True),
        ("SELECT a, sum(x) AS s FROM t GROUP BY a", True),
        ("SELECT a, sum(b) AS s FROM t GROUP BY a", False),
        ("SELECT a, b FROM t ORDER BY a LIMIT 1", False),
    ],
)
def test_only_a_plain_layout_stores_what_the_query_gives(query: str, plain: bool) -> None:
    assert layout(query).is_plain is plain
