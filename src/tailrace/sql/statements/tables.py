"""Statements about tables and schemas: CREATE, ALTER, DROP, DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql.types import parse_type, spark_type
from tailrace.sql import query_frame
from tailrace.sql.diagnostics import Span
from tailrace.sql.parser import Parser
from tailrace.sql.result import Result, done, listed
from tailrace.sql.statements.indexes import CreateIndex, read_in_table
from tailrace.sql.statements.queries import Query
from tailrace.sql.statements.queries import read as read_query
from tailrace.store.names import fold
from tailrace.store.table import Table

if TYPE_CHECKING:
    from tailrace.lake import Lake


KINDS = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal(p,s)", "string",
    "boolean", "date", "timestamp", "timestamp_ntz", "binary", "array<…>", "map<…>", "struct<…>",
)  # fmt: skip


def read_type(parser: Parser, *stops: str) -> str:
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
        raise parser.fail("the column's type is missing", hint=f"types: {', '.join(KINDS)}")
    try:
        parse_type(text)
    except InvalidError as error:
        hint = f"types: {', '.join(KINDS)}"
        raise parser.refuse(span, f"{text} is not a type", hint=hint) from error
    return text


_AFTER_A_TYPE = (
    "NOT",
    "NULL",
    "PRIMARY",
    "COMMENT",
    "DEFAULT",
    "GENERATED",
    "REFERENCES",
    "UNIQUE",
)


@dataclass(frozen=True, kw_only=True)
class CreateTable:
    """`CREATE TABLE [IF NOT EXISTS] name (column type …, PRIMARY KEY (…)) | AS SELECT …`.

    `INDEX name USING kind (column, …)` among the columns creates an index in the same commit.
    """

    name: str
    if_not_exists: bool
    columns: Mapping[str, str]
    key: tuple[str, ...]
    indexes: tuple[CreateIndex, ...] = ()
    query: Query | None = None

    def run(self, lake: Lake, args: Mapping[str, Any]) -> Result:
        if self.if_not_exists and _exists(lake, self.name):
            return done(lake, f"the table {self.name} exists already")
        with lake.transaction() as txn:
            columns: Any = dict(self.columns)
            frame = None
            if self.query is not None:
                frame = query_frame.frame_of(
                    lake, self.query.sql, args, source_text=self.query.source_text
                )
                columns = frame.schema
            table = txn.create_table(self.name, columns, primary_key=self.key)
            for index in self.indexes:
                index.add(lake, txn)
            if frame is not None:
                assert self.query is not None
                with self.query.source_text.spark_faults():
                    table.append(frame)
        return done(lake, f"table {self.name} created", snapshot=txn.snapshot)


@dataclass(frozen=True, kw_only=True)
class DropTable:
    """`DROP TABLE [IF EXISTS] name [CASCADE]`."""

    name: str
    if_exists: bool
    cascade: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_exists and not _exists(lake, self.name):
            return done(lake, f"there is no table {self.name}")
        snapshot = lake.drop_table(self.name, cascade=self.cascade)
        return done(lake, f"table {self.name} dropped", snapshot=snapshot)


@dataclass(frozen=True, kw_only=True)
class Describe:
    """`DESCRIBE name`."""

    name: str

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if fold(self.name) in map(fold, lake.views()):
            columns = lake.view(self.name).columns
            rows: list[dict[str, Any]] = [
                {"column": n, "type": k, "nullable": True, "key": None} for n, k in columns.items()
            ]
        else:
            table = lake.table(self.name).info
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


def _exists(lake: Lake, name: str) -> bool:
    try:
        lake.table(name)
    except NotFoundError:
        return False
    return True


def read_create_table(parser: Parser) -> CreateTable:
    """After CREATE TABLE."""
    lenient = parser.accept("IF", "NOT", "EXISTS")
    name = parser.object_name("the table")
    columns: dict[str, str] = {}
    key: list[str] = []
    indexes: list[CreateIndex] = []
    if parser.word() == "(":
        parser.expect("(")
        while True:
            if parser.accept("PRIMARY", "KEY"):
                key += [name for name, _ in parser.columns()]
            elif parser.word(2) == "USING" and parser.accept("INDEX"):  # or a column of that name
                indexes.append(read_in_table(parser, name))
            else:
                start = parser.offset
                column, kind, is_key = _column(parser)
                if fold(column) in map(fold, columns):
                    span = Span(start=start, end=start + len(column))
                    raise parser.refuse(span, f"the column {column} is there twice")
                if is_key and key:
                    hint = "a key of several columns is written after them: PRIMARY KEY (a, b)"
                    raise parser.fail("there is a primary key already", hint=hint)
                columns[column] = kind
                key += [column] if is_key else []
            if not parser.accept(","):
                break
        parser.expect(")")
    query = None
    if not columns:
        parser.expect("AS")
        query = read_query(parser)
    elif parser.word() == "AS":
        raise parser.fail(
            "a table has either columns or a query",
            hint="leave the columns out: CREATE TABLE t AS SELECT …",
        )
    _refuse_clauses(parser)
    for index in indexes:
        index.check_columns(list(columns))
    return CreateTable(
        name=name, if_not_exists=lenient, columns=columns, key=tuple(key), query=query,
        indexes=tuple(indexes),
    )  # fmt: skip


def _refuse_clauses(parser: Parser) -> None:
    hints = {
        "USING": "leave USING out: every table of a lake is stored as Parquet",
        "PARTITIONED": "leave it out: rows are ordered by the primary key, and files are skipped "
        "by their statistics",
        "LOCATION": "leave it out: a lake decides where its objects lie",
        "TBLPROPERTIES": "leave it out: a table has no properties",
        "COMMENT": "leave it out: a lake keeps no comments",
    }
    if parser.word() in hints:
        raise parser.fail(f"{parser.word()} is not for a lake's tables", hint=hints[parser.word()])


def _column(parser: Parser) -> tuple[str, str, bool]:
    name = parser.name("a column")
    kind = read_type(parser, *_AFTER_A_TYPE)
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
    return name, kind, is_key


def read_drop_table(parser: Parser) -> DropTable:
    """After DROP TABLE."""
    lenient = parser.accept("IF", "EXISTS")
    name = parser.object_name("the table")
    return DropTable(name=name, if_exists=lenient, cascade=parser.accept("CASCADE"))


def read_describe(parser: Parser) -> Describe:
    """After DESCRIBE."""
    parser.accept("TABLE")
    return Describe(name=parser.object_name("the table or view"))


@dataclass(frozen=True, kw_only=True)
class Alter:
    """`ALTER TABLE name …`."""

    name: str
    what: str  # for the message
    changes: tuple[Callable[[Table], Any], ...]

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        with lake.transaction() as txn:
            for change in self.changes:
                change(txn.table(self.name))
        return done(lake, f"{self.name}: {self.what}", snapshot=txn.snapshot)


def read_alter(parser: Parser) -> Alter:
    """After ALTER TABLE."""
    name = parser.object_name("the table")
    if parser.accept("ADD"):
        return _add(parser, name)
    if parser.accept("DROP"):
        parser.expect("COLUMN")
        column = parser.name("the column")
        change = _call("drop_column", column)
        return Alter(name=name, what=f"column {column} dropped", changes=(change,))
    if parser.accept("RENAME", "COLUMN"):
        old = parser.name("the column")
        parser.expect("TO")
        new = parser.name("the column")
        change = _call("rename_column", old, new)
        return Alter(name=name, what=f"column {old} is {new} now", changes=(change,))
    if parser.accept("ALTER", "COLUMN"):
        column = parser.name("the column")
        parser.expect("TYPE")
        kind = read_type(parser)
        change = _call("widen_column", column, kind)
        return Alter(name=name, what=f"column {column} is {kind} now", changes=(change,))
    if parser.word() == "RENAME":
        raise parser.fail(hint="a table keeps its name: create another and INSERT INTO it")
    raise parser.fail()


def _add(parser: Parser, name: str) -> Alter:
    several = parser.accept("COLUMNS")
    if not several:
        parser.expect("COLUMN")
    bracket = parser.accept("(") if several else False
    changes, added = [], []
    while True:
        column = parser.name("the column")
        kind = read_type(parser, "NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER")
        if parser.word() in ("NOT", "DEFAULT", "COMMENT", "FIRST", "AFTER"):
            raise parser.fail(hint="a new column is the last one, and NULL in the rows that exist")
        changes.append(_call("add_column", column, kind))
        added.append(column)
        if not several or not parser.accept(","):
            break
    if bracket:
        parser.expect(")")
    what = f"column {added[0]} added" if len(added) == 1 else f"columns {', '.join(added)} added"
    return Alter(name=name, what=what, changes=tuple(changes))


def _call(method: str, *args: str) -> Callable[[Table], Any]:
    return lambda table: getattr(table, method)(*args)


@dataclass(frozen=True, kw_only=True)
class CreateSchema:
    """`CREATE SCHEMA [IF NOT EXISTS] name`."""

    name: str
    if_not_exists: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_not_exists and fold(self.name) in map(fold, lake.schemas()):
            return done(lake, f"the schema {self.name} exists already")
        snapshot = lake.create_schema(self.name)
        return done(lake, f"schema {self.name} created", snapshot=snapshot)


@dataclass(frozen=True, kw_only=True)
class DropSchema:
    """`DROP SCHEMA [IF EXISTS] name`."""

    name: str
    if_exists: bool

    def run(self, lake: Lake, _args: Mapping[str, Any]) -> Result:
        if self.if_exists and fold(self.name) not in map(fold, lake.schemas()):
            return done(lake, f"there is no schema {self.name}")
        snapshot = lake.drop_schema(self.name)
        return done(lake, f"schema {self.name} dropped", snapshot=snapshot)


def read_create_schema(parser: Parser) -> CreateSchema:
    """After CREATE SCHEMA."""
    lenient = parser.accept("IF", "NOT", "EXISTS")
    return CreateSchema(name=parser.name("the schema"), if_not_exists=lenient)


def read_drop_schema(parser: Parser) -> DropSchema:
    """After DROP SCHEMA."""
    lenient = parser.accept("IF", "EXISTS")
    return DropSchema(name=parser.name("the schema"), if_exists=lenient)
