"""Windows of time in queries."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidError
from tailrace.views.query.parse import READABLE, parse_anew, with_readable_windows
from tests.views.plain import definition, layout


def test_the_function_is_renamed_where_a_parenthesis_follows() -> None:
    text = "SELECT window(seen, '1 day'), Window (seen, '1 day') FROM t"
    assert with_readable_windows(text) == text.replace("window(", f"{READABLE}(").replace(
        "Window (", f"{READABLE} ("
    )


@pytest.mark.parametrize(
    "text", ["SELECT window.start FROM t", "SELECT 'window(x)' FROM t", "SELECT `window` FROM t"]
)
def test_other_windows_stay_what_they_are(text: str) -> None:
    assert with_readable_windows(text) == text


def test_a_text_that_cannot_be_cut_is_left_to_the_parser() -> None:
    assert with_readable_windows("SELECT 'open") == "SELECT 'open"


def test_a_parsed_query_has_the_function_under_its_own_name() -> None:
    tree = parse_anew("SELECT window(seen, '1 day') AS w FROM t").tree
    assert "WINDOW(" in tree.sql("spark").upper()
    assert READABLE not in tree.sql("spark")


@pytest.mark.parametrize("kind", ["'1 hour'", "'1 hour', '10 minutes'"])
def test_counts_by_window_are_added_up(kind: str) -> None:
    made = layout(
        f"SELECT window.start AS w, count(*) AS n FROM t GROUP BY window(seen, {kind})"
    )  # fmt: skip
    assert made.way == "merge"


def test_a_session_depends_on_rows_beside_it() -> None:
    made = definition("SELECT count(*) AS n FROM t GROUP BY session_window(seen, '5 minutes')")
    assert made.layout is None
    assert "a session depends on rows beside it" in made.reason


def test_a_query_has_at_most_one_window_of_time() -> None:
    with pytest.raises(InvalidError, match="at most one window"):
        definition("SELECT window(seen, '1 day') AS v, window(seen, '1 hour') AS w FROM t")
