"""What only reads: SELECT and its relatives, EXPLAIN, SHOW."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql import query_frame
from tailrace.sql.diagnostics import QueryText
from tailrace.sql.listings import listing
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, arrow_types, listed
from tailrace.sql.statements.views import read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.lake import Lake
    from tailrace.views.refresh.planner import Explanation

_LISTED = ("TABLES", "VIEWS", "INDEXES", "JOBS", "ITERATIONS", "SNAPSHOTS", "TASKS", "SCHEMAS")
_LIMIT, _MOST = 100, 1_000_000_000


def read_query(parser: Parser) -> QueryText:
    """Read everything that is left."""
    if parser.accept("TABLE"):  # which sqlglot does not know
        return parser.put_together(f"SELECT * FROM {parser.cut(parser.rest())}")
    return parser.query(parser.rest())


def read(parser: Parser) -> Run:
    """`SELECT …`, `WITH …`, `VALUES …`, `FROM …`, `TABLE name`. Its rows stay with Spark."""
    query = read_query(parser)

    def run(lake: Lake, args: Mapping[str, Any]) -> Result:
        frame = query_frame.frame_of(lake, query, args)
        return Result(lake, frame=frame, query=query)

    return run


def read_explain(parser: Parser) -> Run:
    """`EXPLAIN [CREATE] MATERIALIZED VIEW …`, or `EXPLAIN SELECT …`."""
    if parser.accept("MATERIALIZED", "VIEW"):
        name = parser.object_name("the view")
        return lambda lake, _args: _explained(lake, lake.view(name).explain())
    if parser.accept("CREATE", "MATERIALIZED", "VIEW"):
        view = read_definition(parser)
        return lambda lake, _args: _explained(lake, lake.explain(view.query, policy=view.policy))
    if parser.word() not in ("SELECT", "WITH", "FROM", "VALUES", "("):
        parser.accept("SELECT")
        raise parser.fail()
    query = read_query(parser)

    def run(lake: Lake, args: Mapping[str, Any]) -> Result:
        text = _plan(query_frame.frame_of(lake, query, args))
        return listed(lake, [{"plan": text}], {"plan": pa.string()}, text=text)

    return run


def _plan(frame: DataFrame) -> str:
    """The text that `DataFrame.explain` prints, on every kind of session."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain("formatted")
    return said.getvalue().strip()


def _explained(lake: Lake, explanation: Explanation) -> Result:
    text = str(explanation)
    return listed(lake, [{"explanation": text}], {"explanation": pa.string()}, text=text)


def read_show(parser: Parser) -> Run:
    """`SHOW TABLES | VIEWS | … [LIMIT n]`. The catalog answers it, without Spark."""
    name = parser.one_of(_LISTED).lower()
    limit = _LIMIT if name in ("jobs", "iterations", "snapshots", "tasks") else None
    if parser.accept("LIMIT"):
        limit = min(parser.integer("how many"), _MOST)

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        shown = listing(lake.runtime, name, limit=limit)
        return listed(lake, shown.rows, arrow_types(shown.columns))

    return run
