"""How the query of a view that exists finds its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tailrace.errors import InvalidError
from tailrace.propagation import joblog
from tailrace.store import lookup
from tailrace.store.runtime import Runtime
from tailrace.store.schema import TableInfo, fold, quoted_name
from tailrace.store.spark_text import check_registered
from tailrace.views.definition import (
    Definition,
    Find,
    Input,
    ViewInput,
    define,
    reader_of,
    table_input,
)

# Gives the stored table of another view by its name.
Stored = Callable[[str], TableInfo | None]


def defined(
    runtime: Runtime,
    options: Mapping[str, Any],
    *,
    at: int,
    stored: Stored,
    moment: datetime | None,
) -> Definition:
    """The definition of a view from its job's options, with tables as they are at a snapshot."""

    def finder(of: Mapping[str, Any]) -> Find:
        def find(schema: str, name: str) -> Input:
            upstream = of.get("views", {}).get(fold(quoted_name(schema, name)))
            with runtime.database.read() as connection:
                if upstream is None:
                    table = lookup.find_table(connection, schema, name, at, runtime.tenant)
                else:
                    own = joblog.options(connection, upstream)
            if upstream is not None:
                table = stored(own["table"])
            if table is None:
                raise InvalidError(f"the view reads {schema}.{name}, which is not there any more")
            if upstream is None:
                return table_input(table)
            made = define(own["query"], finder(own), moment)
            reader = reader_of(made, [c.name for c in table.columns])
            return table_input(table, ViewInput(job=upstream, reader=reader, definition=made))

        return find

    found = define(options["query"], finder(options), moment)
    check_registered(runtime.spark, found.functions)
    return found
