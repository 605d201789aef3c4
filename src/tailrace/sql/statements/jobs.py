"""PAUSE, RESUME and CANCEL JOB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, done
from tailrace.views.jobs import VIEW

if TYPE_CHECKING:
    from tailrace.lake import Lake


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
