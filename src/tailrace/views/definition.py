"""A view's definition: its query, what it reads, how its result is stored, and what readers see.

Owned here: from SQL and a lake's tables to a plan and a layout. A definition depends only on the
query's text, the tables and views that it names, and the day if it asks for it; so it is built
once for these, and cached.

Always true: threads and refreshes share a definition. Nobody changes its trees.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tailrace.errors import Action, Fix, InvalidError
from tailrace.lru import LruCache
from tailrace.spark_sql.functions import DAY
from tailrace.spark_sql.grammar import Lexeme
from tailrace.spark_sql.types import spark_type
from tailrace.store.names import fold, quoted_name
from tailrace.store.schema import Column, TableInfo
from tailrace.views.incremental.layout import VISIBLE, Layout, layout_of
from tailrace.views.query.parse import (
    SOME_MOMENT,
    TOO_DEEP,
    Parsed,
    fix_moments,
    parse,
    parse_anew,
    table_key,
    table_name,
    with_tables,
)
from tailrace.views.query.plan import depth
from tailrace.views.query.scope import Source, SourceColumn, UnsupportedError
from tailrace.views.query.translate import translate
from tailrace.views.query.trees import column_of, renamed, size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The deepest plan, and the frames that are kept free when a view is created: rules and the writer
# of SQL walk trees by recursion.
_DEEPEST, _LESS_ROOM = 60, 150
# Parts of queries whose definitions are kept; with its plan, each comes to about two kilobytes.
_KEPT = 50_000
# What a reader's query calls the stored table, and its key there.
STORED = "stored"
STORED_KEY = fold(quoted_name("main", STORED))


@dataclass(frozen=True, kw_only=True)
class Input(Source):
    """A table, or another view, that a query names. Compared by what the rest follows from."""

    table: TableInfo | None = None  # None for a view that has not been built
    view: ViewInput | None = None

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns of its primary key."""
        table = self.table
        return () if table is None else tuple(column.name for column in table.key_columns)


@dataclass(frozen=True, kw_only=True)
class ViewInput:
    """A view that another one reads."""

    job: int  # its job's id
    definition: Definition


# Gives a table by schema and name.
Find = Callable[[str, str], Input]


@dataclass(frozen=True, kw_only=True, eq=False)
class Definition:
    """What a query means, as far as it can be translated."""

    tree: exp.Query  # without stars, and with the moment in place of its functions
    inputs: Mapping[str, Input]  # by the folded name in the query
    moments: tuple[str, ...] = ()
    functions: tuple[Lexeme, ...] = ()  # that it calls, except Spark's own
    layout: Layout | None = None
    reason: str = ""  # why there is no layout
    types: Mapping[str, exp.DataType] = field(default_factory=dict)  # of the plan's columns

    @cached_property
    def sources(self) -> dict[str, Input]:
        """The inputs by the stored table's name, in the order of their numbers in programs."""
        return {given.name: given for given in self.inputs.values()}

    @cached_property
    def tables(self) -> dict[str, TableInfo]:
        """The sources' tables with the columns that are used; without views that are not built."""
        return {
            name: given.table.narrowed(self.fields[name])
            for name, given in self.sources.items()
            if given.table is not None
        }

    @cached_property
    def fields(self) -> dict[str, list[str]]:
        """The columns that it uses of each input, by the stored table's name."""
        if self.layout is None:
            return {
                given.name: [column.name for column in given.columns]
                for given in self.inputs.values()
            }
        used: dict[str, set[str]] = {given.name: set() for given in self.inputs.values()}
        for scan in self.layout.root.scans:
            used.setdefault(scan.source, set()).update(scan.fields)
        return {name: sorted(fields) for name, fields in used.items()}


_definitions: LruCache[Definition] = LruCache(_KEPT, lambda definition: size(definition.tree))


def name_of(table: TableInfo) -> str:
    """Schema and name, quoted where they have to be."""
    return quoted_name(table.schema, table.name)


def define(text: str, find: Find, moment: datetime | None = None) -> Definition:
    """Define a view by a query; where rules cannot maintain it, a reason stands for the layout."""
    parsed = parse(text)
    if not parsed.tables:
        raise InvalidError("a view has to read at least one table")
    inputs = {fold(quoted_name(*name)): find(*name) for name in parsed.tables}
    if not parsed.moments or moment is None:
        moment = SOME_MOMENT
    elif set(parsed.moments) <= DAY:
        moment = datetime.combine(moment.date(), time(), moment.tzinfo)
    key = (text, tuple(inputs.items()), moment)
    known = _definitions.get(key)
    if known is not None:
        return known
    definition = _define(parsed, inputs, moment)
    # What is too deep depends on where the stack is now, and no instant comes again.
    if definition.reason == TOO_DEEP or (moment != SOME_MOMENT and not set(parsed.moments) <= DAY):
        return definition
    return _definitions.put(key, definition)


def _define(parsed: Parsed, inputs: Mapping[str, Input], moment: datetime) -> Definition:
    tree = parsed.tree.copy()
    fix_moments(tree, moment)
    layout, reason = None, ""
    types: Mapping[str, exp.DataType] = {}
    try:
        query, types = translate(tree, lambda table: inputs[table_key(table)])
        layout = layout_of(query)
        if depth(layout.root) > _DEEPEST:
            layout, reason = None, TOO_DEEP
    except UnsupportedError as error:
        reason = str(error)
    except RecursionError:
        reason = TOO_DEEP
    return Definition(
        tree=tree,
        inputs=inputs,
        moments=parsed.moments,
        functions=parsed.functions,
        layout=layout,
        reason=reason,
        types=types,
    )


def table_input(table: TableInfo, view: ViewInput | None = None) -> Input:
    """A table, or a view that has been built."""
    names = [column.name for column in table.columns]
    reader = None if view is None else reader_of(view.definition, names)
    columns = _columns(table.columns)
    return Input(name=name_of(table), columns=columns, table=table, view=view, reader=reader)


@lru_cache(maxsize=1000)
def _columns(columns: tuple[Column, ...]) -> tuple[SourceColumn, ...]:
    return tuple(
        SourceColumn(name=c.name, type=_type_tree(spark_type(c.type)), nullable=c.nullable)
        for c in columns
    )


@lru_cache(maxsize=1000)
def _type_tree(text: str) -> exp.DataType:
    """A type as sqlglot has it: the same few come again and again, and parsing is slow."""
    return exp.DataType.build(text, dialect="spark")


def unbuilt_input(name: str, view: ViewInput) -> Input:
    """A view that has not been built, with the columns that its query tells."""
    layout = view.definition.layout
    if layout is None:
        raise InvalidError(
            f"{name} has not been built, and its query alone does not tell its columns",
            fix=Fix(Action.BUILD_VIEW, name),
        )
    unknown = exp.DataType.build("unknown")
    columns = tuple(
        SourceColumn(name=c.name, type=view.definition.types.get(c.column, unknown))
        for c in layout.columns
    )
    reader = reader_of(view.definition, ())
    return Input(name=name, columns=columns, view=view, reader=reader)


def spelled_out(text: str, find: Find) -> str:
    """A query without stars: columns added to a table later do not join the view."""
    try:
        return _with_less_room(_LESS_ROOM, lambda: _spelled_out(text, find))
    except RecursionError as error:
        raise InvalidError(TOO_DEEP) from error


def _with_less_room(frames: int, make: Callable[[], str]) -> str:
    """Call deeper in the stack: what works there works in a refresh, too."""
    return _with_less_room(frames - 1, make) if frames else make()


def _spelled_out(text: str, find: Find) -> str:
    tree = parse_anew(text).tree
    find_once = lru_cache(find)  # a query may read a table many times
    try:
        translate(tree, lambda table: find_once(*table_name(table)))
    except UnsupportedError:
        return text
    return str(tree.sql("spark"))


def reader_of(definition: Definition, columns: Sequence[str]) -> exp.Select:
    """The query over the stored table, called `stored`, that shows the view.

    `columns` are the table's: some queries do not tell theirs.
    """
    layout = definition.layout
    names = shown_names(definition) or columns
    query = exp.select(*(column_of(name, quoted=True) for name in names)).from_(STORED)
    if layout is None:
        return query
    if any(column.column == VISIBLE for column in layout.columns):
        query = query.where(column_of(VISIBLE, quoted=True))
    if layout.limit is not None:
        own = {column.column: column_of(column.name, quoted=True) for column in layout.columns}
        for tree in layout.limit.order:
            query = query.order_by(renamed(tree, own), copy=False)
        if layout.limit.count is not None:
            query = query.limit(layout.limit.count)
        if layout.limit.offset:
            query = query.offset(layout.limit.offset)
    return query


def shown_names(definition: Definition) -> list[str] | None:
    """The names of the columns that users see; None if the query does not tell them."""
    if definition.layout is None:
        return None
    return [column.name for column in definition.layout.columns if not column.hidden]


def over_frames(
    session: SparkSession, query: exp.Query, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """A query on Spark, over frames in place of its tables; these are given by their keys."""
    token = secrets.token_hex(8)
    names = {key: f"frame{number}_{token}" for number, key in enumerate(frames)}
    text = with_tables(query, names.__getitem__).sql("spark").replace("{", "{{").replace("}", "}}")
    for name in names.values():
        text = text.replace(name, f"{{{name}}}")
    arguments: dict[str, Any] = {name: frames[key] for key, name in names.items()}
    return session.sql(text, **arguments)
