"""EXPLAIN: how a view is kept fresh, or Spark's plan of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql import query_frame
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, listed
from tailrace.sql.statements import query
from tailrace.sql.statements.query import Query
from tailrace.sql.statements.views import CreateView, read_create
from tailrace.views.refresh.planner import Explanation

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class ExplainView:
    """`EXPLAIN MATERIALIZED VIEW name`."""

    name: str

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        return _explained(lake, lake.view(self.name).explain())


@dataclass(frozen=True, kw_only=True)
class ExplainCreate:
    """`EXPLAIN CREATE MATERIALIZED VIEW …`."""

    create: CreateView

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        return _explained(lake, self.create.explain(lake))


@dataclass(frozen=True, kw_only=True)
class ExplainQuery:
    """`EXPLAIN SELECT …`."""

    query: Query

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        frame = query_frame.frame_of(lake, self.query.sql, args, source_text=self.query.source_text)
        text = _plan(frame)
        return listed(lake, [{"plan": text}], {"plan": pa.string()}, text=text)


def _plan(frame: Any) -> str:
    """The text that `DataFrame.explain` prints, on every kind of session."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain("formatted")
    return said.getvalue().strip()


def _explained(lake: Lake, explanation: Explanation) -> Result:
    text = str(explanation)
    return listed(lake, [{"explanation": text}], {"explanation": pa.string()}, text=text)


def read(parser: Parser) -> ExplainView | ExplainCreate | ExplainQuery:
    """After EXPLAIN."""
    if parser.accept("MATERIALIZED", "VIEW"):
        return ExplainView(name=parser.object_name("the view"))
    if parser.accept("CREATE", "MATERIALIZED", "VIEW"):
        return ExplainCreate(create=read_create(parser))
    if parser.word() in ("SELECT", "WITH", "FROM", "VALUES", "("):
        return ExplainQuery(query=query.read(parser))
    parser.accept("SELECT")
    raise parser.fail()
