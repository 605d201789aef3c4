"""What an aborted load says; progress is counted by files and by the bytes that are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tailrace.loading.convert import Layout
from tailrace.loading.options import Options
from tailrace.loading.parts import Part, PreparedFile
from tailrace.loading.plan import LoadPlan, Progress, ProgressCounter
from tailrace.loading.rows import Rejected
from tests.support.loading import a_file, a_table


def test_an_error_names_the_first_rows_in_the_order_of_the_input() -> None:
    anything = cast(Any, None)
    plan = LoadPlan(
        txn=anything,
        table=a_table(id="bigint"),
        created=False,
        files=tuple(
            PreparedFile(file=a_file(name), shape=anything, layout=anything)
            for name in ("b.csv", "a.csv")
        ),
        options=Options(),
        report=None,
        tell=lambda _: None,
    )
    rows = [("a.csv", 2), ("b.csv", 9), ("a.csv", 1), ("b.csv", 3)]
    rejected = [
        Rejected(file=file, line=line, column=None, value=None, reason="it is wrong", text="")
        for file, line in rows
    ]
    assert str(plan.refusal(rejected)).splitlines() == [
        "rows that do not fit main.t; nothing was loaded:",
        "  b.csv, line 3: it is wrong",
        "  b.csv, line 9: it is wrong",
        "  a.csv, line 1: it is wrong",
        "fix the rows, or load the others with on_error='skip' or 'report'",
    ]


LAYOUT = Layout(table="main.t", columns=(), sources=())


def test_a_file_is_done_with_its_last_part() -> None:
    text, parquet, empty = a_file("a.csv"), a_file("b.parquet", size=50), a_file("c.csv", size=0)
    whole = Part(number=0, file=text, layout=LAYOUT, size=60)
    parts = [whole, replace(whole, number=1, size=40)]
    # The groups of a Parquet file are larger than the file: they are told uncompressed.
    group = Part(number=2, file=parquet, layout=LAYOUT, size=500)
    parts += [group, replace(group, number=3)]
    told: list[Progress] = []
    counter = ProgressCounter(told.append, [text, parquet, empty], parts)
    for part in parts:
        counter.read([part], rows=10, rejected=1)
    counter.writing()
    assert [one.files_done for one in told] == [1, 1, 2, 2, 3, 3]
    assert [one.bytes_done for one in told] == [0, 60, 100, 100, 150, 150]
    assert {one.bytes for one in told} == {150}
    assert (told[-1].rows, told[-1].rejected, told[-1].doing) == (40, 4, "writing")
