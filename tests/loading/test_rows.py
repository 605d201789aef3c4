"""Rejected rows as users see them, and in a report, which is CSV that can be loaded again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tailrace.errors import InvalidError
from tailrace.loading.rows import (
    Misfit,
    PartStarts,
    Rejected,
    as_json,
    check_path,
    cut,
    nearest,
    shown,
    write_report,
)


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


def test_rejected_rows_are_written_as_they_stand_in_the_file(tmp_path: Path) -> None:
    row = Rejected(
        file="a.csv", line=3, column=None, value=None, reason="it is wrong", text='1,"\n"'
    )
    path = tmp_path / "r.csv"
    write_report(path, [row])
    with path.open(newline="") as handle:
        (read,) = csv.DictReader(handle)
    assert read == {
        "file": "a.csv",
        "line": "3",
        "column": "",
        "value": "",
        "reason": "it is wrong",
        "text": '1,"\n"',
    }


def test_without_rejected_rows_there_is_only_a_header(tmp_path: Path) -> None:
    write_report(tmp_path / "r.csv", [])
    assert (tmp_path / "r.csv").read_text() == "file,line,column,value,reason,text\n"


def test_a_report_needs_a_file_in_a_directory(tmp_path: Path) -> None:
    check_path(tmp_path / "r.csv")
    for path in (tmp_path, tmp_path / "missing" / "r.csv"):
        with pytest.raises(InvalidError, match="name a file in a directory"):
            check_path(path)
