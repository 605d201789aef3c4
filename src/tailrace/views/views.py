"""The views of a lake: create, find, explain and drop them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tailrace.errors import Action, Fix, InvalidError
from tailrace.propagation import joblog
from tailrace.propagation.job import JobRecord
from tailrace.propagation.jobs import home_of
from tailrace.store.names import check_name, fold, is_hidden, quoted_name, split_name
from tailrace.store.spark_text import check_printed, check_registered
from tailrace.store.transaction import Transaction
from tailrace.views.consumer import check_policy
from tailrace.views.definition import Definition, define, over_frames, shown_names, spelled_out
from tailrace.views.jobs import VIEW, jobs_of_views
from tailrace.views.refresh.planner import Explanation, explain
from tailrace.views.resolve import finder
from tailrace.views.view import Context, View, built_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Trigger = str | Mapping[str, Any] | None


class Views:
    """The views of a lake, as one tenant sees them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(
        self,
        name: str,
        query: str,
        *,
        trigger: Trigger = None,
        policy: str = "auto",
        priority: int = 0,
        replace: bool = False,
        txn: Transaction | None = None,
    ) -> View:
        """Register a view; see `Lake.create_view`."""
        check_policy(policy)
        schema, plain = split_name(name)
        check_name(plain, "view")
        if is_hidden(plain):
            raise InvalidError(f"the name {plain!r} is reserved: choose another")
        full = quoted_name(schema, plain)
        with self._within(txn) as own:
            old = self._replaced(own, name, replace=replace)
            upstream: dict[str, int] = {}
            find = finder(own, upstream)
            text = spelled_out(query, find)
            definition = define(text, find)
            if policy == "incremental" and definition.layout is None:
                raise InvalidError(
                    "this view cannot be refreshed incrementally, as the policy asks: "
                    f"{definition.reason}"
                )
            check_printed(definition.tree)
            token = secrets.token_hex(4)
            options: dict[str, Any] = {
                "kind": VIEW,
                "view": full,
                "query": text,
                "policy": policy,
                "table": quoted_name(schema, f"_tailrace_{token}"),
                "fields": definition.fields,
                "checked": self._check_with_spark(definition),
            }
            if upstream:
                options["views"] = upstream
            if definition.moments:
                options["moment"] = list(definition.moments)
            if old is not None:
                options["replaces"] = old.id
            elif own.find_view(name) is not None:
                raise InvalidError(f"{name} is a view of another kind: choose another name")
            spec = {
                "trigger": _trigger(trigger),
                "priority": priority,
                "sources": _base_tables(definition),
                "consumer": options,
            }
            job = VIEW if old is None else f"{VIEW} {token}"
            read = list(upstream.values())
            self._context.jobs.register(name, job, spec, txn=own, upstream=read, free_home=True)
        return View(self._context, full)

    def _within(self, txn: Transaction | None) -> AbstractContextManager[Transaction]:
        """The caller's transaction, or one that is committed at the end."""
        return self._context.begin() if txn is None else nullcontext(txn)

    def _replaced(self, txn: Transaction, name: str, *, replace: bool) -> JobRecord | None:
        """The job of the view that a new one takes the place of, if it may."""
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            old = joblog.find(connection, runtime.tenant, home_of(name), VIEW)
            above = [] if old is None else joblog.downstream_of(connection, old.id)
        if old is not None and not replace:
            raise InvalidError(f"the view {name} exists already", fix=Fix(Action.REPLACE_VIEW))
        schema, plain = split_name(name)
        if (fold(schema), fold(plain)) in txn.list_tables():
            raise InvalidError(f"{name} is a table: choose another name for the view")
        if above:
            names = ", ".join(job.home for job in above[:5])
            raise InvalidError(f"{name} cannot be replaced while other views read it ({names})")
        return old

    def _check_with_spark(self, definition: Definition) -> bool:
        """Have Spark check functions and types, if there is a session anyway."""
        session = self._context.runtime.spark.if_there()
        if session is None:
            return False
        check_registered(self._context.runtime.spark, definition.functions)
        check_with_spark(session, definition)
        return True

    def get(self, name: str) -> View:
        """A view; NotFoundError if there is none."""
        view = View(self._context, name)
        view.status()
        return view

    def names(self) -> list[str]:
        """The names of all views."""
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            jobs = jobs_of_views(connection, runtime.tenant)
        names = [split_name(job.spec.consumer["view"]) for job in jobs]
        return sorted(f"{schema}.{plain}" for schema, plain in names)

    def drop(self, name: str, *, cascade: bool = False, txn: Transaction | None = None) -> None:
        """Drop a view; with `cascade`, also those that read it."""
        view = View(self._context, name)
        with self._within(txn) as own:
            job = view._job()
            with self._context.runtime.database.read() as connection:
                above = joblog.downstream_of(connection, job.id) if cascade else []
                beside = built_beside(connection, job)
            self._context.jobs.unregister(name, VIEW, cascade=cascade, txn=own)
            for one in (job, *above):
                if one.kind == VIEW and own.find_view(one.spec.consumer["view"]) is not None:
                    own.drop_view(one.spec.consumer["view"])
            for one in beside:
                self._context.jobs.unregister(name, one.name, txn=own)

    def readers_of(self, table_id: int) -> list[str]:
        """The names of views that read a table."""
        with self._context.runtime.database.read() as connection:
            jobs = joblog.following(connection, [table_id])
        return sorted({job.spec.consumer["view"] for job in jobs if job.kind == VIEW})

    def explain(self, query: str, *, policy: str = "auto") -> Explanation:
        """How a view of this query would be kept fresh, before it is created."""
        check_policy(policy)
        with self._context.begin() as txn:
            find = finder(txn, {})
            definition = define(spelled_out(query, find), find)
        return explain(self._context.runtime, "(not created)", definition, policy=policy)


def _trigger(given: Trigger) -> dict[str, Any]:
    if given is None:
        return {"job_type": "default", "schedule": {}}
    if isinstance(given, str):
        return {"job_type": given, "schedule": {}}
    return dict(given)


def _base_tables(definition: Definition) -> list[str]:
    """All base tables that a view reads, also through other views."""
    tables: dict[str, None] = {}
    for given in definition.inputs.values():
        if given.view is None:
            tables[given.name] = None
        else:
            tables |= dict.fromkeys(_base_tables(given.view.definition))
    return list(tables)


def check_with_spark(session: Any, definition: Definition) -> None:
    """Let Spark read a query over empty tables of the right types."""
    from pyspark.errors import AnalysisException

    from tailrace.store.spark_actions import spark_faults

    try:
        with spark_faults():
            _empty(session, definition).schema  # noqa: B018  (reading it is the check)
    except AnalysisException as error:
        first = str(error).partition(";")[0].partition("\n")[0]
        raise InvalidError(f"Spark cannot read the query: {first}") from error


def _empty(session: Any, definition: Definition) -> DataFrame:
    """A query over empty tables."""
    from tailrace.spark_sql.types import spark_schema

    frames: dict[str, DataFrame] = {}
    for key, given in definition.inputs.items():
        if given.view is not None:
            frame = _empty(session, given.view.definition)
            frames[key] = frame.toDF(*(shown_names(given.view.definition) or frame.columns))
        else:
            assert given.table is not None
            frames[key] = session.createDataFrame([], spark_schema(given.table.arrow_schema))
    return over_frames(session, definition.tree, frames)
