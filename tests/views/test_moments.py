"""Functions of the time in queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tailrace.views.query.parse import fix_moments, moment_text, moments_in, parse_anew

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("current_date", ("current_date",)),
        ("current_date()", ("current_date",)),
        ("now()", ("now",)),
        ("current_timestamp()", ("current_timestamp",)),
        ("localtimestamp()", ("localtimestamp",)),
        ("unix_timestamp()", ("unix_timestamp",)),
        ("unix_timestamp(t)", ()),
        ("date_add(current_date(), 1), now()", ("current_date", "now")),
        ("t", ()),
    ],
)
def test_functions_of_the_time_are_found(value: str, names: tuple[str, ...]) -> None:
    found = moments_in(parse_anew(f"SELECT {value} FROM s").tree)
    assert {name.replace("current_timestamp", "now") for name in found} == {
        name.replace("current_timestamp", "now") for name in names
    }


def test_a_moment_takes_their_place() -> None:
    tree = parse_anew("SELECT a FROM s WHERE day = current_date() AND at < now()").tree
    fix_moments(tree, NOON)
    text = tree.sql("spark")
    assert "CAST('2024-02-29' AS DATE)" in text
    assert "CAST('2024-02-29 12:00:00+00:00' AS TIMESTAMP)" in text
    assert not moments_in(tree)


def test_a_day_is_told_as_long_as_it_lasts() -> None:
    day = ("current_date",)
    assert moment_text(day, NOON) == moment_text(day, NOON + timedelta(hours=11))
    assert moment_text(day, NOON) != moment_text(day, NOON + timedelta(hours=13))
    assert moment_text(("now",), NOON) != moment_text(("now",), NOON + timedelta(seconds=1))
    assert moment_text((), NOON) == ""
