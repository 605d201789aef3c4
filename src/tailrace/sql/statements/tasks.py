"""Statements about tasks of maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, done

if TYPE_CHECKING:
    from tailrace.lake import Lake


def read_cancel(parser: Parser) -> Run:
    """`CANCEL TASK number`."""
    number = parser.integer("the number of a task, as SHOW TASKS lists it")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        lake.cancel_task(number)
        return done(lake, f"task {number} canceled", {"task_id": number})

    return run
