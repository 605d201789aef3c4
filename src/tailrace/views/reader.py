"""What readers see of a view's stored table: no hidden columns and rows, and its LIMIT."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tailrace.store.names import quoted_name, split_name
from tailrace.views.definition import Definition
from tailrace.views.incremental.layout import VISIBLE

# What a reader's query calls the stored table.
STORED = "stored"


def reader_of(definition: Definition, columns: Sequence[str]) -> exp.Select:
    """The query over the stored table, called `stored`, that shows the view.

    `columns` are the table's: some queries do not tell theirs.
    """
    layout = definition.layout
    names = shown_names(definition) or columns
    query = exp.select(*map(_column, names)).from_(STORED)
    if layout is None:
        return query
    if any(column.column == VISIBLE for column in layout.columns):
        query = query.where(_column(VISIBLE))
    if layout.limit is not None:
        own = {column.column: _column(column.name) for column in layout.columns}
        for tree in layout.limit.order:
            ordered = tree.copy()
            for column in list(ordered.find_all(exp.Column)):
                column.replace(own[column.name].copy())
            query = query.order_by(ordered, copy=False)
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


def reader_sql(reader: exp.Query, table: str, dialect: str) -> str:
    """A reader's query over a table or view with this name."""
    renamed = reader.copy()
    for relation in renamed.find_all(exp.Table):
        if relation.name == STORED:
            relation.set("this", exp.to_identifier(table, quoted=True))
    return str(renamed.sql(dialect))


def stored_table_name(view: str, token: str) -> str:
    """A new name for a view's stored table, in the view's schema."""
    schema, _ = split_name(view)
    return quoted_name(schema, f"_tailrace_{re.sub('[^0-9a-z]', '', token)}")


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))
