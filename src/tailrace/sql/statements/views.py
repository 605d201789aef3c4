"""Statements about materialized views, and about the jobs that keep them and others fresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql.diagnostics import in_sql
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, done, exists, listed
from tailrace.sql.searches import calls_of
from tailrace.sql.statements.options import read_options
from tailrace.views.consumer import POLICIES
from tailrace.views.jobs import VIEW

if TYPE_CHECKING:
    from tailrace.lake import Lake


_OPTIONS = ("trigger", "interval", "policy", "priority")
_REFRESHED = ("strategy", "rows_read", "rows_written", "seconds")
_REPORT = {
    "view": pa.string(), "ok": pa.bool_(), "watermark": pa.int64(), "rows": pa.int64(),
    "missing": pa.int64(), "extra": pa.int64(),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ViewDefinition:
    """`[IF NOT EXISTS] name [WITH (…)] AS SELECT …`."""

    name: str
    if_not_exists: bool
    query: str
    policy: str
    trigger: Any
    priority: int


def read_definition(parser: Parser, *, replace: bool = False) -> ViewDefinition:
    """After CREATE [OR REPLACE] MATERIALIZED VIEW."""
    lenient = False if replace else parser.accept("IF", "NOT", "EXISTS")
    name = parser.object_name("the view")
    options = read_options(parser)
    options.check(_OPTIONS)
    policy = options.values.get("policy", "auto")
    if policy not in POLICIES:
        hint = f"policies: {', '.join(POLICIES)}"
        raise options.refuse("policy", f"there is no policy {policy!r}", hint=hint)
    parser.expect("AS")
    query = parser.query(parser.rest("the query"))
    for call in calls_of(query):
        raise call.error(
            "a view cannot read from a search, whose best rows change with every write",
            hint="write the search into the query that reads the view",
        )
    return ViewDefinition(
        name=name, if_not_exists=lenient, query=query.sql, policy=policy,
        trigger=options.trigger(), priority=options.priority(),
    )  # fmt: skip


def read_create(parser: Parser, *, replace: bool = False) -> Run:
    """`CREATE [OR REPLACE] MATERIALIZED VIEW …`."""
    view = read_definition(parser, replace=replace)

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if view.if_not_exists and exists(lake.view, view.name):
            return done(lake, f"the view {view.name} exists already")
        created = lake.create_view(
            view.name, view.query, trigger=view.trigger, policy=view.policy,
            priority=view.priority, replace=replace,
        )  # fmt: skip
        message = (
            f"view {view.name} created; tailrace serve, or REFRESH MATERIALIZED VIEW, builds it"
        )
        if not created.is_checked:
            message += " (Spark has not checked its query: no session is running)"
        return done(lake, message)

    return run


def read_refresh(parser: Parser) -> Run:
    """`REFRESH MATERIALIZED VIEW name [FULL]`."""
    name = parser.object_name("the view")
    full = parser.accept("FULL")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        view = lake.view(name)
        did = view.refresh(full=full)
        facts = {column: getattr(did, column) for column in _REFRESHED}
        message = (
            f"{name}: {did.strategy}, {did.rows_read:,} rows read, "
            f"{did.rows_written:,} written, {did.seconds:.2f} s"
        )
        return done(lake, message, {**facts, "watermark": view.watermark})

    return run


def read_verify(parser: Parser) -> Run:
    """`VERIFY MATERIALIZED VIEW name`."""
    name = parser.object_name("the view")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        report = lake.view(name).verify()
        row = {column: getattr(report, column) for column in _REPORT}
        return listed(lake, [row], _REPORT, text=report.said(in_sql))

    return run


# --- jobs ---------------------------------------------------------------------------------------


def read_job(verb: str) -> Callable[[Parser], Run]:
    """`PAUSE | RESUME | CANCEL JOB view`, or `… JOB name ON table`."""

    def read(parser: Parser) -> Run:
        table = parser.object_name("the view, or of the job")
        name = parser.last_name
        if parser.accept("ON"):
            table = parser.object_name("the table")
        else:
            name = VIEW

        def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
            if name == VIEW:
                lake.view(table)  # its error is clearer
            getattr(lake.jobs, verb)(table, name)
            state = lake.jobs.status(table, name).state
            job = table if name == VIEW else f"{name} on {table}"
            return done(lake, f"the job of {job} is {state}")

        return run

    return read
