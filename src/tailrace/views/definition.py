"""A view's definition: its query, what it reads, and how its result is stored.

Owned here: from SQL and the tables of a lake to a plan and a layout. It is made when the view is
created, and again at each refresh from what is stored of it, so that it depends on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.errors import InvalidError
from tailrace.spark_sql.determinism import DAY, INSTANT, called, is_moment
from tailrace.spark_sql.lexer import Lexeme, without_comments
from tailrace.spark_sql.types import spark_type
from tailrace.store.schema import TableInfo, fold, quoted_name, split_name
from tailrace.store.spark_text import check_query, named_tables, spelled_otherwise
from tailrace.views.incremental.layout import VISIBLE, Layout, layout_of
from tailrace.views.query.plan import depth
from tailrace.views.query.scope import Source, SourceColumn, UnsupportedError, balanced
from tailrace.views.query.time_windows import READABLE, restore_windows, with_readable_windows
from tailrace.views.query.translate import translate

# The kind of the jobs that keep views fresh, and their name.
VIEW = "view"
# How many operators may be above each other, and frames that are kept free when a view is created:
# rules, and what writes SQL, go down by recursion.
_DEEPEST, _LESS_ROOM = 60, 150
TOO_DEEP = "the query is nested too deeply"


@dataclass(frozen=True, kw_only=True)
class Input:
    """A table, or another view, that a query names."""

    name: str  # of the table; of a view, of the stored one
    columns: tuple[SourceColumn, ...]
    table: TableInfo | None = None  # None for a view that has not been built
    view: ViewInput | None = None


@dataclass(frozen=True, kw_only=True)
class ViewInput:
    """What is to be known of a view that another one reads."""

    job: int  # that derives it
    reader: exp.Query  # what its readers see of the stored table, which it calls `stored`
    definition: Definition


# Gives a table by schema and name.
Find = Callable[[str, str], Input]


@dataclass(kw_only=True)
class Definition:
    """A query that was understood, as far as it goes."""

    tree: exp.Query  # without stars, and with the moment in place of its functions
    inputs: dict[str, Input] = field(default_factory=dict)  # by the folded name in the query
    moments: tuple[str, ...] = ()
    functions: tuple[Lexeme, ...] = ()  # that it calls, and that are none of Spark's
    layout: Layout | None = None
    reason: str = ""  # why there is no layout
    types: dict[str, exp.DataType] = field(default_factory=dict)  # of the plan's columns

    @property
    def fields(self) -> dict[str, list[str]]:
        """The columns that are used of each input, by the stored table's name."""
        found: dict[str, set[str]] = {given.name: set() for given in self.inputs.values()}
        if self.layout is None:
            return {
                given.name: [column.name for column in given.columns]
                for given in self.inputs.values()
            }
        for scan in self.layout.root.scans:
            found.setdefault(scan.source, set()).update(scan.fields)
        return {name: sorted(fields) for name, fields in found.items()}


def name_of(table: TableInfo) -> str:
    """Schema and name, so that they can be read again."""
    return quoted_name(table.schema, table.name)


def parse(text: object) -> tuple[exp.Query, tuple[Lexeme, ...]]:
    """One query in Spark SQL, and the functions in it that are none of Spark's."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidError("a view needs a query: SELECT …")
    try:
        plain = with_readable_windows(without_comments(text))
        trees = spark_sql.parse(plain)
    except sqlglot.errors.SqlglotError as error:
        found = getattr(error, "errors", None) or [{"description": str(error)}]
        first = found[0]
        where = f" at line {first['line']}, column {first['col']}" if first.get("line") else ""
        raise InvalidError(f"cannot read the query: {first['description']}{where}") from error
    except spark_sql.TooDeepError as error:
        raise InvalidError(f"{TOO_DEEP}: {spark_sql.LIMIT}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidError("a view is one query: SELECT …, or WITH … SELECT …")
    tree = trees[0]
    functions = tuple(word for word in check_query(plain, tree) if word.text != READABLE)
    for table, given in list(spelled_otherwise(tree)):
        table.this.set("this", given)  # a session may tell large letters from small ones
    restore_windows(tree)
    for call in list(tree.find_all(exp.Localtimestamp)):
        # Without parentheses, as sqlglot would write it, it would be a column.
        call.replace(exp.Anonymous(this="localtimestamp", expressions=[]))
    if tree.find(exp.Into, exp.Placeholder, exp.Parameter):
        raise InvalidError("a view's query has no INTO and no parameters")
    return balanced(tree), functions


def define(text: str, find: Find, moment: datetime | None = None) -> Definition:
    """Understand a query; what cannot be kept up by rules has no layout, and a reason."""
    tree, functions = parse(text)
    inputs: dict[str, Input] = {}
    for table in _tables(tree):
        schema, name = _names(table)
        key = fold(quoted_name(schema, name))
        if key not in inputs:
            inputs[key] = find(schema, name)
    if not inputs:
        raise InvalidError("a view has to read at least one table")
    moments = _fix_moments(tree, moment or datetime(2000, 1, 1, tzinfo=UTC))
    made = Definition(tree=tree, inputs=inputs, moments=moments, functions=functions)

    def resolve(table: exp.Table) -> Source:
        return source_of(inputs[fold(quoted_name(*_names(table)))])

    try:
        query, made.types = translate(tree, resolve)
        made.layout = layout_of(query)
        if depth(made.layout.root) > _DEEPEST:
            made.layout, made.reason = None, TOO_DEEP
    except UnsupportedError as error:
        made.reason = str(error)
    except RecursionError:
        made.reason = TOO_DEEP
    return made


def source_of(given: Input) -> Source:
    """An input as the translator wants it."""
    reader = None if given.view is None else given.view.reader
    return Source(name=given.name, columns=given.columns, reader=reader)


def table_input(table: TableInfo, view: ViewInput | None = None) -> Input:
    """A table, or a view that has been built."""
    columns = tuple(
        SourceColumn(
            name=column.name,
            type=_type_tree(spark_type(column.type)),
            nullable=column.nullable,
        )
        for column in table.columns
    )
    return Input(name=name_of(table), columns=columns, table=table, view=view)


@lru_cache(maxsize=1000)
def _type_tree(text: str) -> exp.DataType:
    """A type as sqlglot has it: few are asked for often, and parsing each takes its time."""
    return exp.DataType.build(text, dialect="spark")


def unbuilt_input(name: str, view: ViewInput) -> Input:
    """A view that has not been built: its columns as far as its query tells them."""
    layout = view.definition.layout
    if layout is None:
        raise InvalidError(
            f"{name} has not been built, and its query alone does not tell its columns: "
            "refresh() it first"
        )
    unknown = exp.DataType.build("unknown")
    columns = tuple(
        SourceColumn(name=c.name, type=view.definition.types.get(c.column, unknown))
        for c in layout.columns
    )
    return Input(name=name, columns=columns, view=view)


def _tables(tree: exp.Query) -> list[exp.Table]:
    """Tables that are not a WITH's."""
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise InvalidError(f"{table.sql('spark')[:60]} is not a table of the lake")
    return named_tables(tree)


def _names(table: exp.Table) -> tuple[str, str]:
    if table.catalog:
        raise InvalidError(f"{table.sql('spark')}: name a table by its schema and name")
    return table.db or "main", table.name


def with_tables(tree: exp.Query, rename: Callable[[str], str]) -> exp.Query:
    """A query over other relations: `rename` gives the new name for an input's key."""
    made = tree.copy()
    for table in _tables(made):
        key = fold(quoted_name(*_names(table)))
        if not table.args.get("alias"):
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("db", None)
        table.set("this", exp.to_identifier(rename(key)))
    return made


def _fix_moments(tree: exp.Query, moment: datetime) -> tuple[str, ...]:
    """Put a moment's values in place of the functions that ask for it.

    They are fixed for a refresh, and a reason for the next when they have moved on.
    """
    used = set()
    for call in list(tree.find_all(exp.Func)):
        name = called(call)
        if name in DAY:
            call.replace(exp.cast(exp.Literal.string(moment.date().isoformat()), "date"))
        elif name in INSTANT and is_moment(call):
            instant = exp.cast(exp.Literal.string(moment.isoformat(" ")), "timestamp")
            if name == "localtimestamp":  # in the session's time zone
                instant = exp.cast(instant, "timestamp_ntz", dialect="spark")
            if isinstance(call.parent, exp.StrToUnix):  # what sqlglot makes of unix_timestamp()
                name = "unix_timestamp"
            call.replace(instant)
        else:
            continue
        used.add(name)
    return tuple(sorted(used))


def spelled_out(text: str, find: Find) -> str:
    """A query without stars: columns that a table gets later are not the view's."""
    try:
        return _with_less_room(_LESS_ROOM, lambda: _spelled_out(text, find))
    except RecursionError as error:
        raise InvalidError(TOO_DEEP) from error


def _with_less_room(frames: int, make: Callable[[], str]) -> str:
    """Do something deeper in the stack: what works there, works at a refresh, too."""
    return _with_less_room(frames - 1, make) if frames else make()


def _spelled_out(text: str, find: Find) -> str:
    tree, _ = parse(text)
    find_once = lru_cache(find)  # a query may read a table many times

    def resolve(table: exp.Table) -> Source:
        return source_of(find_once(*_names(table)))

    try:
        translate(tree, resolve)
    except UnsupportedError:
        return text
    return str(tree.sql("spark"))


def moment_text(moments: tuple[str, ...], moment: datetime) -> str:
    """What a view's functions of the moment say: equal as long as they do."""
    if not moments:
        return ""
    return str(moment.date()) if set(moments) <= DAY else moment.isoformat()


# --- what readers see --------------------------------------------------------------------------


def reader_of(made: Definition, columns: list[str]) -> exp.Select:
    """The query over the stored table, called `stored`, that shows the view."""
    layout = made.layout
    names = columns
    if layout is not None:
        names = [column.name for column in layout.columns if not column.hidden]
    query = exp.select(*(_column(name) for name in names)).from_("stored")
    if layout is None:
        return query
    if any(column.column == VISIBLE for column in layout.columns):
        query = query.where(_column(VISIBLE))
    if layout.limit is not None:
        own = {column.column: _column(column.name) for column in layout.columns}
        for tree in layout.limit.order:
            ordered = tree.copy()
            for found in list(ordered.find_all(exp.Column)):
                found.replace(own[found.name].copy())
            query = query.order_by(ordered, copy=False)
        if layout.limit.count is not None:
            query = query.limit(layout.limit.count)
        if layout.limit.offset:
            query = query.offset(layout.limit.offset)
    return query


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def reader_sql(reader: exp.Query, table: str, dialect: str) -> str:
    """A reader's query over a table or view of that name."""
    made = reader.copy()
    for found in made.find_all(exp.Table):
        if found.name == "stored":
            found.set("this", exp.to_identifier(table, quoted=True))
    return str(made.sql(dialect))


def output_names(made: Definition) -> list[str] | None:
    """The names of the columns that users see, if the query tells them."""
    if made.layout is not None:
        return [column.name for column in made.layout.columns if not column.hidden]
    return None


def new_table_name(view: str, token: str) -> str:
    """The name of a view's stored table: in the view's schema."""
    schema, _ = split_name(view)
    return quoted_name(schema, f"_tailrace_{re.sub('[^0-9a-z]', '', token)}")
