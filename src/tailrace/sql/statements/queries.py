"""What only reads: SELECT and its relatives, EXPLAIN, SHOW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql import query_frame
from tailrace.sql.diagnostics import SourceText
from tailrace.sql.listings import listing
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, arrow_types, listed
from tailrace.sql.statements.views import CreateView, read_create
from tailrace.views.refresh.planner import Explanation

if TYPE_CHECKING:
    from tailrace.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query."""

    sql: str
    source_text: SourceText

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        frame = query_frame.frame_of(lake, self.sql, args, source_text=self.source_text)
        return Result(spark=lambda: lake.spark, frame=frame, source_text=self.source_text)


def read(parser: Parser) -> Query:
    """Read everything that is left."""
    if parser.accept("TABLE"):  # which sqlglot does not know
        return Query(
            sql=f"SELECT * FROM {parser.cut(parser.rest())}",
            source_text=SourceText(text=parser.text),
        )
    span = parser.rest()
    return Query(sql=parser.cut(span), source_text=SourceText(text=parser.text, offset=span.start))


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


def read_explain(parser: Parser) -> ExplainView | ExplainCreate | ExplainQuery:
    """After EXPLAIN."""
    if parser.accept("MATERIALIZED", "VIEW"):
        return ExplainView(name=parser.object_name("the view"))
    if parser.accept("CREATE", "MATERIALIZED", "VIEW"):
        return ExplainCreate(create=read_create(parser))
    if parser.word() in ("SELECT", "WITH", "FROM", "VALUES", "("):
        return ExplainQuery(query=read(parser))
    parser.accept("SELECT")
    raise parser.fail()


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


def read_show(parser: Parser) -> Show:
    """After SHOW."""
    what = parser.one_of(WHAT)
    limit = min(parser.integer("how many"), _MOST) if parser.accept("LIMIT") else None
    return Show(what=what, limit=limit)
