"""SHOW: what there is. The catalog answers it, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql.listings import listing
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, arrow_types, listed

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
        name = self.what.lower()
        many = name in ("jobs", "iterations", "snapshots")
        limit = _LIMIT if self.limit is None and many else self.limit
        shown = listing(lake.runtime, name, limit=limit)
        return listed(lake, shown.rows, arrow_types(shown.columns))


def read(parser: Parser) -> Show:
    """After SHOW."""
    what = parser.one_of(WHAT)
    limit = min(parser.integer("how many"), _MOST) if parser.accept("LIMIT") else None
    return Show(what=what, limit=limit)
