"""What an aborted load says."""

from __future__ import annotations

from typing import Any, cast

from tailrace.loading.options import Options
from tailrace.loading.parts import PreparedFile
from tailrace.loading.plan import LoadPlan
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
