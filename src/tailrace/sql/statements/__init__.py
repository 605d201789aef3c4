"""Runs statements, for `lake.sql()` and the command line: the table of them, by their first words.

Each module has functions that read the rest of a statement from a parser, and give what runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError, TailraceError
from tailrace.sql.diagnostics import in_sql
from tailrace.sql.parser import Parser, Statement, statements
from tailrace.sql.result import Result, Run
from tailrace.sql.statements import (
    edits,
    indexes,
    insert,
    merge,
    queries,
    tables,
    tasks,
    views,
)

if TYPE_CHECKING:
    from tailrace.lake import Lake


STATEMENTS: Mapping[str, Callable[[Parser], Run]] = {
    "SELECT": queries.read,
    "WITH": queries.read,
    "VALUES": queries.read,
    "FROM": queries.read,
    "TABLE": queries.read,
    "(": queries.read,
    "CREATE SCHEMA": tables.read_create_schema,
    "CREATE TABLE": tables.read_create_table,
    "CREATE MATERIALIZED VIEW": views.read_create,
    "CREATE OR REPLACE MATERIALIZED VIEW": partial(views.read_create, replace=True),
    "CREATE INDEX": indexes.read_create,
    "DROP SCHEMA": tables.read_drop_schema,
    "DROP TABLE": tables.read_drop("table"),
    "DROP MATERIALIZED VIEW": tables.read_drop("view"),
    "DROP INDEX": indexes.read_drop,
    "ALTER TABLE": tables.read_alter,
    "INSERT INTO": insert.read,
    "UPDATE": edits.read_update,
    "DELETE FROM": edits.read_delete,
    "MERGE INTO": merge.read,
    "REFRESH MATERIALIZED VIEW": views.read_refresh,
    "REFRESH INDEX": indexes.read_refresh,
    "VERIFY MATERIALIZED VIEW": views.read_verify,
    "EXPLAIN": queries.read_explain,
    "DESCRIBE": tables.read_describe,
    "SHOW": queries.read_show,
    "PAUSE JOB": views.read_job("pause"),
    "RESUME JOB": views.read_job("resume"),
    "CANCEL JOB": views.read_job("cancel"),
    "CANCEL TASK": tasks.read_cancel,
    "OPTIMIZE": tasks.read_optimize,
}
# Statements of other databases, and what to write instead.
ELSEWHERE: Mapping[str, str] = {
    "CREATE VIEW": "write CREATE MATERIALIZED VIEW name AS SELECT …: every view here is stored",
    "CREATE OR REPLACE VIEW": "write CREATE OR REPLACE MATERIALIZED VIEW name AS SELECT …",
    "CREATE OR REPLACE TABLE": "DROP TABLE and CREATE TABLE: a lake never replaces a table",
    "CREATE DATABASE": "write CREATE SCHEMA name",
    "DROP DATABASE": "write DROP SCHEMA name",
    "DROP VIEW": "write DROP MATERIALIZED VIEW name",
    "INSERT OVERWRITE": "write INSERT INTO, after DELETE FROM if the old rows are to go",
    "INSERT": "write INSERT INTO table …",
    "DELETE": "write DELETE FROM table WHERE …",
    "MERGE": "write MERGE INTO table USING …",
    "TRUNCATE": "write DELETE FROM table WHERE true",
    "REPLACE": "use MERGE INTO, or upsert() in Python",
    "BEGIN": "a statement is a transaction; for several: with lake.transaction() as txn, in Python",
    "START": "a statement is a transaction; for several: with lake.transaction() as txn, in Python",
    "COMMIT": "every statement commits by itself; for several: lake.transaction(), in Python",
    "ROLLBACK": "every statement commits by itself; for several: lake.transaction(), in Python",
    "USE": "name the schema: SELECT … FROM schema.table",
    "SET": "settings are given to tailrace.connect(…, settings=…), and Spark's to its session",
    "REFRESH TABLE": "tables are always fresh; for a view: REFRESH MATERIALIZED VIEW name",
    "REFRESH": "write REFRESH MATERIALIZED VIEW name [FULL], or REFRESH INDEX name ON table [FULL]",
    "REBUILD": "write REFRESH INDEX name ON table FULL",
    "ALTER INDEX": "an index stays as it is: DROP INDEX and CREATE INDEX; or REFRESH INDEX … FULL",
    "VACUUM": "call lake.purge() in Python",
    "GRANT": "a lake has tenants instead: tailrace.connect(…, tenant=…)",
    "PAUSE": "write PAUSE JOB view, or PAUSE JOB name ON table",
    "RESUME": "write RESUME JOB view, or RESUME JOB name ON table",
    "CANCEL": "write CANCEL JOB view, CANCEL JOB name ON table, or CANCEL TASK number",
}


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
    run_it = read(Parser(statement))
    try:
        return run_it(lake, args or {})
    except TailraceError as error:
        error.use(in_sql)
        raise


def read(parser: Parser) -> Run:
    """Read the whole statement."""
    for words in sorted(STATEMENTS, key=len, reverse=True):
        if _begins(parser, words):
            if STATEMENTS[words] is not queries.read:  # which keeps its first word
                parser.accept(*words.split(" "))
            run_it = STATEMENTS[words](parser)
            parser.end()
            return run_it
    for words in sorted(ELSEWHERE, key=len, reverse=True):
        if _begins(parser, words):
            raise parser.fail(f"{words} is not a statement of a lake", hint=ELSEWHERE[words])
    first = parser.word()
    nexts = [words.split(" ", 1)[1] for words in STATEMENTS if words.startswith(f"{first} ")]
    if nexts:
        parser.accept(first)
        for words in nexts:
            parser.accept(*words.split(" "))
        raise parser.fail()
    for word in dict.fromkeys(words.split(" ")[0] for words in STATEMENTS):
        parser.accept(word)
    raise parser.fail()


def _begins(parser: Parser, words: str) -> bool:
    return all(parser.word(n) == word for n, word in enumerate(words.split(" ")))
