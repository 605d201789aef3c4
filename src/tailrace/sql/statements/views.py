"""Statements about materialized views, and about the jobs that keep them and others fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.sql.diagnostics import SourceText, Span, in_sql
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, done, listed
from tailrace.sql.searches import calls_of
from tailrace.sql.statements.options import Options, read_options
from tailrace.store.names import fold
from tailrace.views.consumer import POLICIES
from tailrace.views.jobs import VIEW
from tailrace.views.refresh.planner import Explanation

if TYPE_CHECKING:
    from tailrace.lake import Lake


_OPTIONS = ("trigger", "interval", "policy", "priority")


@dataclass(frozen=True, kw_only=True)
class CreateView:
    """`CREATE [OR REPLACE] MATERIALIZED VIEW name [WITH (…)] AS SELECT …`."""

    parser: Parser
    name: str
    if_not_exists: bool
    replace: bool
    options: Options
    query: Span

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_not_exists and fold(self.name) in map(fold, lake.views()):
            return done(lake, f"the view {self.name} exists already")
        view = lake.create_view(
            self.name,
            self._query(),
            trigger=self.options.trigger(),
            policy=self._policy(),
            priority=self.options.priority(),
            replace=self.replace,
        )
        message = (
            f"view {self.name} created; tailrace serve, or REFRESH MATERIALIZED VIEW, builds it"
        )
        if not view.is_checked:
            message += " (Spark has not checked its query: no session is running)"
        return done(lake, message)

    def explain(self, lake: Lake) -> Explanation:
        return lake.explain(self._query(), policy=self._policy())

    def _query(self) -> str:
        text = self.parser.cut(self.query)
        for call in calls_of(text, SourceText(text=self.parser.text, offset=self.query.start)):
            raise call.error(
                "a view cannot read from a search, whose best rows change with every write",
                hint="write the search into the query that reads the view",
            )
        return text

    def _policy(self) -> str:
        policy = self.options.values.get("policy", "auto")
        if policy not in POLICIES:
            raise self.options.refuse(
                "policy", f"there is no policy {policy!r}", hint=f"policies: {', '.join(POLICIES)}"
            )
        return str(policy)


@dataclass(frozen=True, kw_only=True)
class DropView:
    """`DROP MATERIALIZED VIEW [IF EXISTS] name [CASCADE]`."""

    name: str
    if_exists: bool
    cascade: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_exists and fold(self.name) not in map(fold, lake.views()):
            return done(lake, f"there is no view {self.name}")
        lake.drop_view(self.name, cascade=self.cascade)
        return done(lake, f"view {self.name} dropped")


@dataclass(frozen=True, kw_only=True)
class RefreshView:
    """`REFRESH MATERIALIZED VIEW name [FULL]`."""

    name: str
    full: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        view = lake.view(self.name)
        did = view.refresh(full=self.full)
        facts = {
            "strategy": did.strategy,
            "rows_read": did.rows_read,
            "rows_written": did.rows_written,
            "seconds": did.seconds,
            "watermark": view.watermark,
        }
        message = (
            f"{self.name}: {did.strategy}, {did.rows_read:,} rows read, "
            f"{did.rows_written:,} written, {did.seconds:.2f} s"
        )
        return done(lake, message, facts)


@dataclass(frozen=True, kw_only=True)
class VerifyView:
    """`VERIFY MATERIALIZED VIEW name`."""

    name: str

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        report = lake.view(self.name).verify()
        row = {name: getattr(report, name) for name in _REPORT}
        return listed(lake, [row], _REPORT, text=report.said(in_sql))


_REPORT = {
    "view": pa.string(), "ok": pa.bool_(), "watermark": pa.int64(), "rows": pa.int64(),
    "missing": pa.int64(), "extra": pa.int64(),
}  # fmt: skip


def read_create(parser: Parser, *, replace: bool = False) -> CreateView:
    """After CREATE MATERIALIZED VIEW."""
    lenient = False if replace else parser.accept("IF", "NOT", "EXISTS")
    name = parser.object_name("the view")
    options = read_options(parser)
    options.check(_OPTIONS)
    parser.expect("AS")
    query = parser.rest()
    if query.start == query.end:
        raise parser.fail("the query is missing")
    return CreateView(
        parser=parser, name=name, if_not_exists=lenient, replace=replace, options=options,
        query=query,
    )  # fmt: skip


def read_replace(parser: Parser) -> CreateView:
    """After CREATE OR REPLACE MATERIALIZED VIEW."""
    return read_create(parser, replace=True)


def read_drop(parser: Parser) -> DropView:
    """After DROP MATERIALIZED VIEW."""
    lenient = parser.accept("IF", "EXISTS")
    name = parser.object_name("the view")
    return DropView(name=name, if_exists=lenient, cascade=parser.accept("CASCADE"))


def read_refresh(parser: Parser) -> RefreshView:
    """After REFRESH MATERIALIZED VIEW."""
    name = parser.object_name("the view")
    return RefreshView(name=name, full=parser.accept("FULL"))


def read_verify(parser: Parser) -> VerifyView:
    """After VERIFY MATERIALIZED VIEW."""
    return VerifyView(name=parser.object_name("the view"))


@dataclass(frozen=True, kw_only=True)
class ChangeJob:
    """`PAUSE | RESUME | CANCEL JOB view`, or `… JOB name ON table`."""

    verb: str
    table: str
    name: str

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        change = getattr(lake.jobs, self.verb)
        if self.name == VIEW:
            lake.view(self.table)  # its error is clearer
        change(self.table, self.name)
        state = lake.jobs.status(self.table, self.name).state
        job = self.table if self.name == VIEW else f"{self.name} on {self.table}"
        return done(lake, f"the job of {job} is {state}")


def _read(parser: Parser, verb: str) -> ChangeJob:
    first = parser.object_name("the view, or of the job")
    name = parser.last_name
    if parser.accept("ON"):
        return ChangeJob(verb=verb, table=parser.object_name("the table"), name=name)
    return ChangeJob(verb=verb, table=first, name=VIEW)


def read_pause(parser: Parser) -> ChangeJob:
    """After PAUSE JOB."""
    return _read(parser, "pause")


def read_resume(parser: Parser) -> ChangeJob:
    """After RESUME JOB."""
    return _read(parser, "resume")


def read_cancel(parser: Parser) -> ChangeJob:
    """After CANCEL JOB."""
    return _read(parser, "cancel")
