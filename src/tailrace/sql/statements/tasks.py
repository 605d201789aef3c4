"""Statements about maintenance: OPTIMIZE, and CANCEL TASK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, done

if TYPE_CHECKING:
    from tailrace.lake import Lake

_KINDS = {
    "table": pa.string(),
    "reason": pa.string(),
    "files": pa.int64(),
    "rows": pa.int64(),
    "into": pa.int64(),
    "bytes": pa.int64(),
}


def read_optimize(parser: Parser) -> Run:
    """`OPTIMIZE name [WHERE condition] [FULL]`."""
    name = parser.object_name("the table or view")
    where = parser.cut(parser.upto("FULL")) if parser.accept("WHERE") else None
    full = parser.accept("FULL")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        compactions = lake.maintain(name, where=where, full=full)
        files, into = (sum(getattr(one, n) or 0 for one in compactions) for n in ("files", "into"))
        message = f"{name}: {files:,} files became {into:,}" if files else f"{name}: nothing to do"
        rows = [one.to_dict() for one in compactions]
        return Result(lake, rows=rows, kinds=_KINDS, message=message)

    return run


def read_cancel(parser: Parser) -> Run:
    """`CANCEL TASK number`."""
    number = parser.integer("the number of a task, as SHOW TASKS lists it")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        lake.cancel_task(number)
        return done(lake, f"task {number} canceled", {"task_id": number})

    return run
