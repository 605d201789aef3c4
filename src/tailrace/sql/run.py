"""Runs statements, for `lake.sql()` and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError, TailraceError
from tailrace.sql.fixes import in_sql
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result
from tailrace.sql.script import Statement, statements
from tailrace.sql.statements import read

if TYPE_CHECKING:
    from tailrace.lake import Lake


def run(lake: Lake, text: str, args: Mapping[str, Any] | None = None) -> Result:
    """Run a statement, or several, one after the other; the result is the last one's."""
    if not isinstance(text, str):
        raise InvalidError(f"SQL is a text, not {text!r}")
    result = None
    for statement in statements(text):
        result = run_one(lake, statement, args)
    if result is None:
        raise InvalidError("there is no statement in this text: try SHOW TABLES")
    return result


def run_one(lake: Lake, statement: Statement, args: Mapping[str, Any] | None = None) -> Result:
    """Read a statement, and run it."""
    statement_read = read(Parser(statement))
    try:
        return statement_read.run(lake, args or {})
    except TailraceError as error:
        error.use(in_sql)
        raise
