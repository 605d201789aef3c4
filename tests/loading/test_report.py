"""The report is CSV, which can be loaded again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tailrace.errors import InvalidError
from tailrace.loading.report import check_path, write_report
from tailrace.loading.rows import Rejected


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
