"""Runs statements: the one way in for `lake.sql()` and the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError, TailraceError
from tailrace.sql.cursor import Cursor
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
    statement_read = read(Cursor(statement))
    try:
        return statement_read.run(lake, args or {})
    except TailraceError as error:
        raise type(error)(_in_sql(str(error))) from error


# What a message advises in Python, as SQL says it.
_IN_SQL = {
    r"lake\.create_schema\('(\w+)'\)": r"CREATE SCHEMA \1",
    r"lake\.create_schema\(…\)": "CREATE SCHEMA",
    r"lake\.tables\(\) and lake\.views\(\) list ": "SHOW TABLES and SHOW VIEWS list ",
    r"lake\.tables\(\) lists": "SHOW TABLES lists",
    r"lake\.views\(\) lists": "SHOW VIEWS lists",
    r"lake\.indexes\(\) lists": "SHOW INDEXES lists",
    r"index\.wait\(\) waits for it, and does the work if nobody serves the lake": (
        "REFRESH INDEX builds it now"
    ),
    r"index\.wait\(\) lets it": "REFRESH INDEX lets it",
    r'freshness="indexed" or stale_ok=True takes': "freshness => 'indexed' takes",
    r"index\.rebuild\(\)": "REFRESH INDEX … FULL",
    r'with options=\{"dimension": 128\}': "WITH (dimension = 128)",
    r"lake\.jobs\.list\(\) shows": "SHOW JOBS shows",
    r"cascade=True": "CASCADE",
    r"replace=True builds": "CREATE OR REPLACE builds",
    r"use upsert to replace rows": "use MERGE INTO to replace rows",
    r"\brefresh\(\) it": "REFRESH it",
    r"\bserve\(\)": "tailrace serve",
    r"use drop_view": "use DROP MATERIALIZED VIEW",
}


def _in_sql(message: str) -> str:
    for python, sql in _IN_SQL.items():
        message = re.sub(python, sql, message)
    return message
