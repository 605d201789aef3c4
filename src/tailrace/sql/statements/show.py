"""SHOW: what there is. Answered by the catalog alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.sql import overview, system
from tailrace.sql.cursor import Cursor
from tailrace.sql.door import Door
from tailrace.sql.result import Result, listed

WHAT = ("TABLES", "VIEWS", "INDEXES", "JOBS", "ITERATIONS", "SNAPSHOTS", "SCHEMAS")
_LIMIT = 100
_INDEXES = {"index": pa.string(), "table": pa.string(), "kind": pa.string()}


@dataclass(frozen=True, kw_only=True)
class Show:
    """`SHOW TABLES | VIEWS | INDEXES | JOBS | ITERATIONS | SNAPSHOTS | SCHEMAS [LIMIT n]`."""

    what: str
    limit: int | None

    def run(self, door: Door, _args: Mapping[str, Any]) -> Result:
        match self.what:
            case "TABLES":
                rows = overview.tables(door)
            case "VIEWS":
                rows = overview.views(door)
            case "SCHEMAS":
                rows = pa.table({"schema": pa.array(sorted(door.schemas()), pa.string())})
            case "INDEXES":
                return listed(lambda: door.spark, [], _INDEXES)
            case _:
                limit = _LIMIT if self.limit is None else self.limit
                rows = system.rows(door.runtime, self.what.lower(), limit=limit)
        if self.limit is not None:
            rows = rows.slice(max(0, rows.num_rows - self.limit))
        return Result(spark=lambda: door.spark, rows=rows)


def read(cursor: Cursor) -> Show:
    """After SHOW."""
    what = cursor.one_of(WHAT)
    limit = cursor.integer("how many") if cursor.accept("LIMIT") else None
    cursor.end()
    return Show(what=what, limit=limit)
