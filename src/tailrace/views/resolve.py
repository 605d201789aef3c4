"""How a view's query finds the tables and views that it names.

An existing view's job says which they are; a new query finds them by name, in a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.propagation import joblog
from tailrace.propagation.jobs import home_of
from tailrace.store.names import fold, quoted_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import TableInfo
from tailrace.store.spark_text import check_registered
from tailrace.store.transaction import Transaction
from tailrace.views.definition import (
    Definition,
    Find,
    Input,
    ViewInput,
    define,
    table_input,
    unbuilt_input,
)
from tailrace.views.jobs import VIEW

# Gives the stored table of another view by its name.
Stored = Callable[[str], TableInfo | None]


def definition_at(
    runtime: TenantRuntime,
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
            if upstream is None:
                table = runtime.mirror.find_table(schema, name, at, runtime.tenant)
            else:
                with runtime.database.read() as connection:
                    own = joblog.options(connection, upstream)
                table = stored(own["table"])
            if table is None:
                raise InvalidError(f"the view reads {schema}.{name}, which no longer exists")
            if upstream is None:
                return table_input(table)
            definition = define(own["query"], finder(own), moment)
            return table_input(table, ViewInput(job=upstream, definition=definition))

        return find

    definition = define(options["query"], finder(options), moment)
    check_registered(runtime.spark, definition.functions)
    return definition


def finder(txn: Transaction, views: dict[str, int]) -> Find:
    """How a new view's query finds what it names; `views` collects the jobs of views."""

    def find(schema: str, name: str) -> Input:
        full = quoted_name(schema, name)
        runtime = txn.runtime
        with runtime.database.read() as connection:
            job = joblog.find(connection, runtime.tenant, home_of(full), VIEW)
        if job is not None and job.kind == VIEW:
            views[fold(full)] = job.id
            return _view_input(txn, job.id, job.spec.consumer)
        try:
            return table_input(txn.info(full))
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no table or view {schema}.{name}",
                fix=Fix(Action.LIST_TABLES_AND_VIEWS),
            ) from error

    return find


def _view_input(txn: Transaction, job_id: int, options: Mapping[str, Any]) -> Input:
    view = ViewInput(job=job_id, definition=define(options["query"], finder(txn, {})))
    try:
        return table_input(txn.info(options["table"]), view)
    except NotFoundError:
        return unbuilt_input(str(options["table"]), view)
