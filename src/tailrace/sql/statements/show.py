"""SHOW: what there is. Answered by the catalog alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql import overview, system
from tailrace.sql.cursor import Cursor
from tailrace.sql.result import Result, listed

if TYPE_CHECKING:
    from tailrace.lake import Lake

WHAT = ("TABLES", "VIEWS", "INDEXES", "JOBS", "ITERATIONS", "SNAPSHOTS", "SCHEMAS")
_LIMIT, _MOST = 100, 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Show:
    """`SHOW TABLES | VIEWS | INDEXES | JOBS | ITERATIONS | SNAPSHOTS | SCHEMAS [LIMIT n]`."""

    what: str
    limit: int | None

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        kinds: Mapping[str, pa.DataType]
        match self.what:
            case "TABLES":
                rows, kinds = overview.tables(lake.runtime), overview.TABLES
            case "VIEWS":
                rows, kinds = overview.views(lake.runtime), overview.VIEWS
            case "SCHEMAS":
                rows = [{"schema": name} for name in sorted(lake.schemas())]
                kinds = {"schema": pa.string()}
            case "INDEXES":
                rows, kinds = overview.indexes(lake.runtime), overview.INDEXES
            case _:
                name = self.what.lower()
                limit = _LIMIT if self.limit is None else self.limit
                rows, kinds = system.rows(lake.runtime, name, limit=limit), system.TABLES[name]
        if self.limit is not None:
            rows = rows[max(0, len(rows) - self.limit) :]
        return listed(lambda: lake.spark, rows, kinds)


def read(cursor: Cursor) -> Show:
    """After SHOW."""
    what = cursor.one_of(WHAT)
    limit = min(cursor.integer("how many"), _MOST) if cursor.accept("LIMIT") else None
    cursor.end()
    return Show(what=what, limit=limit)
