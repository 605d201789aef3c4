"""Statements about tables and schemas: CREATE, ALTER, DROP, DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.spark_sql.types import parse_type, spark_type
from tailrace.sql import query_frame
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, Run, done, exists, listed
from tailrace.sql.statements.indexes import IndexDefinition, read_in_table
from tailrace.sql.statements.queries import read_query
from tailrace.store.names import fold
from tailrace.store.table import Table

if TYPE_CHECKING:
    from tailrace.lake import Lake

_KINDS = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal(p,s)", "string",
    "boolean", "date", "timestamp", "timestamp_ntz", "binary", "array<…>", "map<…>", "struct<…>",
)  # fmt: skip
_AFTER_A_TYPE = (
    "NOT", "NULL", "PRIMARY", "COMMENT", "DEFAULT", "GENERATED", "REFERENCES", "UNIQUE",
)  # fmt: skip


def _read_type(parser: Parser, *stops: str) -> str:
    """Read a type, up to a comma or one of these words."""
    start = parser.offset
    span = parser.upto(",", *stops)
    text = parser.cut(span)
    # A comma may also be inside of < >.
    while text.count("<") > text.count(">") and parser.word() == ",":
        parser.expect(",")
        span = Span(start=start, end=parser.upto(",", *stops).end)
        text = parser.cut(span)
    if not text:
        raise parser.fail("the column's type is missing", hint=f"types: {', '.join(_KINDS)}")
    try:
        parse_type(text)
    except InvalidError as error:
        hint = f"types: {', '.join(_KINDS)}"
        raise parser.refuse(span, f"{text} is not a type", hint=hint) from error
    return text


def read_create_table(parser: Parser) -> Run:
    """`CREATE TABLE [IF NOT EXISTS] name (column type …, PRIMARY KEY (…)) | AS SELECT …`.

    `INDEX name USING kind (column, …)` among the columns creates an index in the same commit.
    """
    lenient = parser.accept("IF", "NOT", "EXISTS")
    name = parser.object_name("the table")
    columns: dict[str, str] = {}
    key: list[str] = []
    indexes: list[IndexDefinition] = []
    if parser.word() == "(":
        parser.expect("(")
        while True:
            if parser.accept("PRIMARY", "KEY"):
                key += [column for column, _ in parser.columns()]
            elif parser.word(2) == "USING" and parser.accept("INDEX"):  # or a column of that name
                indexes.append(read_in_table(parser, name))
            else:
                _read_column(parser, columns, key)
            if not parser.accept(","):
                break
        parser.expect(")")
    query = None
    if not columns:
        parser.expect("AS")
        query = read_query(parser)
    _refuse_clauses(parser)
    for index in indexes:
        index.check_columns(list(columns))

    def run(lake: Lake, args: Mapping[str, Any]) -> Result:
        if lenient and exists(lake.table, name):
            return done(lake, f"the table {name} exists already")
        with lake.transaction() as txn:
            frame = None if query is None else query_frame.frame_of(lake, query, args)
            described = columns if frame is None else frame.schema
            table = txn.create_table(name, described, primary_key=key)
            for index in indexes:
                index.add(lake, txn)
            if query is not None:
                with query.spark_faults():
                    table.append(frame)
        return done(lake, f"table {name} created", snapshot=txn.snapshot)

    return run


def _refuse_clauses(parser: Parser) -> None:
    hints = {
        "USING": "leave USING out: every table of a lake is stored as Parquet",
        "PARTITIONED": "leave it out: rows are ordered by the primary key, and files are skipped "
        "by their statistics",
        "LOCATION": "leave it out: a lake decides where its objects lie",
        "TBLPROPERTIES": "leave it out: a table has no properties",
        "COMMENT": "leave it out: a lake keeps no comments",
    }
    if parser.word() == "AS":
        raise parser.fail(
            "a table has either columns or a query",
            hint="leave the columns out: CREATE TABLE t AS SELECT …",
        )
    if parser.word() in hints:
        raise parser.fail(f"{parser.word()} is not for a lake's tables", hint=hints[parser.word()])


def _read_column(parser: Parser, columns: dict[str, str], key: list[str]) -> None:
    """`name type [NOT NULL] [PRIMARY KEY]`."""
    name, place = parser.column()
    kind = _read_type(parser, *_AFTER_A_TYPE)
    is_key = False
    while parser.word() not in (",", ")", ""):
        if parser.accept("NOT", "NULL"):
            kind = f"{kind} not null"
        elif parser.accept("PRIMARY", "KEY"):
            is_key = True
        elif parser.word() in ("DEFAULT", "GENERATED", "REFERENCES", "UNIQUE", "COMMENT", "NULL"):
            raise parser.fail(
                f"{parser.word()} is not for a lake's columns",
                hint="a column has a name, a type, and NOT NULL or PRIMARY KEY if needed",
            )
        else:
            raise parser.fail()
    if fold(name) in map(fold, columns):
        raise parser.refuse(place, f"the column {name} is there twice")
    if is_key and key:
        hint = "a key of several columns is written after them: PRIMARY KEY (a, b)"
        raise parser.fail("there is a primary key already", hint=hint)
    columns[name] = kind
    key += [name] if is_key else []


def read_drop(what: str) -> Callable[[Parser], Run]:
    """`DROP TABLE | MATERIALIZED VIEW [IF EXISTS] name [CASCADE]`."""

    def read(parser: Parser) -> Run:
        lenient = parser.accept("IF", "EXISTS")
        name = parser.object_name(f"the {what}")
        cascade = parser.accept("CASCADE")

        def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
            if lenient and not exists(getattr(lake, what), name):
                return done(lake, f"there is no {what} {name}")
            snapshot = getattr(lake, f"drop_{what}")(name, cascade=cascade)
            return done(lake, f"{what} {name} dropped", snapshot=snapshot)

        return run

    return read


def read_describe(parser: Parser) -> Run:
    """`DESCRIBE [TABLE | DETAIL] name`."""
    if not parser.at_last and parser.accept("DETAIL"):  # else it is a table's name
        return _read_detail(parser)
    parser.accept("TABLE")
    name = parser.object_name("the table or view")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if exists(lake.view, name):
            columns = lake.view(name).columns
            rows: list[dict[str, Any]] = [
                {"column": n, "type": k, "nullable": True, "key": None} for n, k in columns.items()
            ]
        else:
            table = lake.table(name).info
            rows = [
                {
                    "column": column.name,
                    "type": spark_type(column.type),
                    "nullable": column.nullable,
                    "key": table.key.index(column.id) + 1 if column.id in table.key else None,
                }
                for column in table.columns
            ]
        kinds = {
            "column": pa.string(), "type": pa.string(), "nullable": pa.bool_(), "key": pa.int64()
        }  # fmt: skip
        return listed(lake, rows, kinds)

    return run


_DETAIL = {
    "files": pa.int64(),
    "small_files": pa.int64(),
    "rows": pa.int64(),
    "deleted_rows": pa.int64(),
    "bytes": pa.int64(),
    "due": pa.string(),
}


def _read_detail(parser: Parser) -> Run:
    """The rest of `DESCRIBE DETAIL name`."""
    name = parser.object_name("the table or view")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        described = lake.view(name) if exists(lake.view, name) else lake.table(name)
        health = described.health()
        row = {key: getattr(health, key) for key in _DETAIL}
        return listed(lake, [{**row, "due": "; ".join(health.due) or None}], _DETAIL)

    return run


# --- ALTER TABLE --------------------------------------------------------------------------------


def read_alter(parser: Parser) -> Run:
    """`ALTER TABLE name ADD | DROP | RENAME | ALTER COLUMN …`."""
    name = parser.object_name("the table")
    what, changes = _read_changes(parser)

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            for change in changes:
                change(txn.table(name))
        return done(lake, f"{name}: {what}", snapshot=txn.snapshot)

    return run


def _read_changes(parser: Parser) -> tuple[str, list[Callable[[Table], Any]]]:
    """What the message says, and the calls that do it."""
    if parser.accept("ADD"):
        return _read_added(parser)
    if parser.accept("DROP"):
        parser.expect("COLUMN")
        column = parser.name("the column")
        return f"column {column} dropped", [methodcaller("drop_column", column)]
    if parser.accept("RENAME", "COLUMN"):
        old = parser.name("the column")
        parser.expect("TO")
        new = parser.name("the column")
        return f"column {old} is {new} now", [methodcaller("rename_column", old, new)]
    if parser.accept("ALTER", "COLUMN"):
        column = parser.name("the column")
        parser.expect("TYPE")
        kind = _read_type(parser)
        return f"column {column} is {kind} now", [methodcaller("widen_column", column, kind)]
    if parser.word() == "RENAME":
        raise parser.fail(hint="a table keeps its name: create another and INSERT INTO it")
    raise parser.fail()


def _read_added(parser: Parser) -> tuple[str, list[Callable[[Table], Any]]]:
    """`COLUMN name type`, or `COLUMNS [(] name type, … [)]`."""
    several = parser.accept("COLUMNS")
    if not several:
        parser.expect("COLUMN")
    bracket = several and parser.accept("(")

    def read_one() -> tuple[str, str]:
        column = parser.name("the column")
        kind = _read_type(parser, "NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER")
        if parser.word() in ("NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER"):
            raise parser.fail(hint="a new column is the last one, and NULL in the rows that exist")
        return column, kind

    added = parser.each(read_one) if several else [read_one()]
    if bracket:
        parser.expect(")")
    names = ", ".join(column for column, _ in added)
    what = f"column{'' if len(added) == 1 else 's'} {names} added"
    return what, [methodcaller("add_column", *one) for one in added]


# --- schemas ------------------------------------------------------------------------------------


def read_create_schema(parser: Parser) -> Run:
    """`CREATE SCHEMA [IF NOT EXISTS] name`."""
    lenient = parser.accept("IF", "NOT", "EXISTS")
    name = parser.name("the schema")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if lenient and fold(name) in map(fold, lake.schemas()):
            return done(lake, f"the schema {name} exists already")
        snapshot = lake.create_schema(name)
        return done(lake, f"schema {name} created", snapshot=snapshot)

    return run


def read_drop_schema(parser: Parser) -> Run:
    """`DROP SCHEMA [IF EXISTS] name`."""
    lenient = parser.accept("IF", "EXISTS")
    name = parser.name("the schema")

    def run(lake: Lake, _args: Mapping[str, Any]) -> Result:
        if lenient and fold(name) not in map(fold, lake.schemas()):
            return done(lake, f"there is no schema {name}")
        snapshot = lake.drop_schema(name)
        return done(lake, f"schema {name} dropped", snapshot=snapshot)

    return run
