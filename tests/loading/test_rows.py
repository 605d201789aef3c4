"""Rejected rows as users see them."""

from __future__ import annotations

from tailrace.loading.rows import Misfit, PartStarts, as_json, cut, nearest, shown


def test_a_row_is_placed_where_its_part_begins() -> None:
    starts = PartStarts(files=("a.csv", "a.csv"), first_lines=(1, 100))
    misfit = Misfit(part=1, line=5, reason="'x' is wrong", text="x", column="id", value="x")
    assert str(starts.of(misfit)) == "a.csv, line 105, column id: 'x' is wrong"
    whole = Misfit(part=0, line=0, reason="it is wrong", text="x")
    assert str(starts.of(whole)) == "a.csv, line 1: it is wrong"


def test_long_values_and_rows_are_cut() -> None:
    assert shown("x" * 100) == "x" * 100
    assert shown("x" * 101) == "x" * 100 + "…"
    assert len(cut("x" * 100_000)) == 64 * 1024 + 1
    assert as_json({"é": None}) == '{"é": null}'


def test_a_name_that_was_probably_meant_is_suggested() -> None:
    assert nearest("NMAE", ["id", "Name"]) == "; did you mean 'Name'?"
    assert nearest("zzz", ["id", "Name"]) == ""
