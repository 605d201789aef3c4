"""From the text of a query to its DataFrame.

The tables that it names are looked up in the lake and given to Spark as frames, under other names
(`table_references`). Spark looks up no name itself (`store.spark_text`), but for the lake's owner,
whose session it is, temporary views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql import types
from tailrace.spark_sql.grammar import RefusedError, without_comments
from tailrace.sql import searches
from tailrace.sql.diagnostics import QueryText, Span, did_you_mean, in_sql
from tailrace.sql.listings import SYSTEM_TABLES, system_rows
from tailrace.sql.result import arrow_types
from tailrace.sql.searches import Call
from tailrace.sql.table_references import TableReference, references, substituted
from tailrace.store.lookup import DEFAULT_TENANT
from tailrace.store.names import OWN_SCHEMA, fold, quoted_name, split_name
from tailrace.store.runtime import TenantRuntime
from tailrace.store.spark_scan import local_frame
from tailrace.store.spark_text import check_query, check_registered, check_settings, named_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.lake import Lake

_LARGEST = 2**63 - 1
# What the names of temporary views begin with that we, or PySpark for us, make of tables.
_OURS = ("tailrace_", "_pyspark_")
# Makes an error at the place where a table is named.
_Fail = Callable[..., InvalidError]


def frame_of(
    lake: Lake,
    query: QueryText,
    args: Mapping[str, Any],
    *,
    given: Mapping[str, DataFrame] | None = None,
    target: str | None = None,
) -> DataFrame:
    """The DataFrame of a query. `given` are frames under names that go before the lake's.

    `target` is a table that one of them stands for, under its own name.
    """
    calls = searches.calls_of(query)
    query = replace(query, sql=without_comments(searches.without_calls(query.sql, calls)))
    tree = parse(query)
    try:
        check_registered(lake.runtime.spark, check_query(query.sql, tree))
    except RefusedError as error:
        span = Span(start=error.start, end=error.end)
        raise query.error_at(span, error.message, hint=error.hint) from error
    _check_calls(tree, calls)
    frames_given = {fold(name): frame for name, frame in (given or {}).items()}
    frames_given |= {call.stand_in: call.frame(lake, args) for call in calls}
    own = [] if target is None else [split_name(target)]
    aliases = {call.stand_in: call.function for call in calls}
    text, frames = _with_frames(lake, query, tree, frames_given, own, aliases)
    left = _args_left(tree, calls, args)
    check_settings(lake.spark, query.sql, tree)
    with query.spark_faults():
        return lake.spark.sql(text, left or None, **frames)


def _check_calls(tree: exp.Expr, calls: Iterable[Call]) -> None:
    """A search stands where a table may."""
    tables = {table.this.name for table in named_tables(tree)}
    for call in calls:
        if call.stand_in not in tables:
            raise call.error(
                f"{call.function} gives a table: it goes into a FROM or a JOIN",
                hint=f"as in FROM {call.function}(…) AS s",
            )


def _args_left(tree: exp.Expr, calls: Iterable[Call], args: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only searches use, which may be values that Spark has no word for."""
    used = {name for call in calls for name in call.parameters}
    used -= {str(one.this) for one in tree.find_all(exp.Placeholder)}
    return {name: value for name, value in args.items() if name not in used}


def parse(query: QueryText) -> exp.Expr:
    """The tree of a query, which is only looked at."""
    try:
        return spark_sql.parse_one(query.sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise _parse_fault(query, first) from error


def _parse_fault(query: QueryText, facts: Mapping[str, Any]) -> InvalidError:
    sql, fragment = query.sql, str(facts.get("highlight") or "")
    lines = [f"{line}\n" for line in sql.split("\n")]
    line = min(max(int(facts.get("line") or 1), 1), max(len(lines), 1))
    # sqlglot counts to the last letter of what it does not understand.
    start = sum(map(len, lines[: line - 1])) + int(facts.get("col") or 1) - max(len(fragment), 1)
    span = Span(start=min(max(start, 0), len(sql)), end=start + len(fragment))
    what = str(facts.get("description") or "")
    if what.startswith("Expecting"):
        message = f"{what[10:]} is expected before {fragment}"
    elif not sql[span.end :].strip():
        message = f"something is missing after {fragment}"
    else:
        message = f"{fragment} is not expected here"
    return query.error_at(span, message)


# --- the tables of a query -----------------------------------------------------------------------


def _with_frames(
    lake: Lake,
    query: QueryText,
    tree: exp.Expr,
    given: Mapping[str, DataFrame],
    known_as: Iterable[tuple[str, str]],
    aliases: Mapping[str, str],
) -> tuple[str, dict[str, DataFrame]]:
    """The text for Spark, and the frames that it names."""
    views = {fold(view) for view in _names(lake.views())}
    frames: dict[str, DataFrame] = {}
    seen: dict[tuple[str, tuple[str, str] | None], str] = {}
    stand_ins = []
    for reference in references(query.sql, tree):
        key = (fold(reference.full_name), reference.version)
        if key not in seen:
            fail = partial(query.error_at, reference.span)
            frame = _frame(lake, fail, reference, given, views)
            if frame is None:
                continue
            seen[key] = f"tailrace_{len(frames)}"
            frames[seen[key]] = frame
        stand_ins.append((reference, seen[key]))
    if not frames:
        return query.sql, {}
    return substituted(query.sql, tree, stand_ins, aliases=aliases, known_as=known_as), frames


def _frame(
    lake: Lake,
    fail: _Fail,
    reference: TableReference,
    given: Mapping[str, DataFrame],
    views: set[str],
) -> DataFrame | None:
    if reference.schema is None and fold(reference.name) in given:
        if reference.version is not None:
            raise fail("VERSION AS OF is for tables", hint="a search takes at => 17")
        return given[fold(reference.name)]
    if reference.tree.args.get("catalog") is not None:
        raise fail("a name has at most two parts: schema.name")
    at = None if reference.version is None else _snapshot(lake, fail, reference.version)
    if fold(reference.schema or "") == OWN_SCHEMA:
        return _system_frame(lake, fail, reference)
    if fold(reference.full_name) in views:
        return lake.view(reference.full_name).to_df(at)
    try:
        return lake.table(reference.full_name).to_df(at)
    except InvalidError as error:
        raise fail(error.said(in_sql)) from error
    except NotFoundError as error:
        full = reference.full_name
        if at is not None and _is_among(full, lake.tables()):
            raise fail(error.said(in_sql)) from error
        if at is not None and _is_among(full, lake.tables(at)):
            raise fail(f"{full} has been dropped since") from error
        if reference.schema is None and _is_the_owners(lake.runtime, reference.name):
            return None
        full = full if reference.schema is not None else f"main.{reference.name}"
        known = [*lake.tables(), *lake.views()]
        near = did_you_mean(full, known)
        near = near or did_you_mean(reference.name, [n.rpartition(".")[2] for n in known])
        raise fail(
            f"there is no table or view {full}{near}",
            hint="SHOW TABLES and SHOW VIEWS list what there is",
        ) from error


def _is_among(full_name: str, names: list[str]) -> bool:
    return fold(full_name) in {fold(name) for name in _names(names)}


def _names(names: list[str]) -> list[str]:
    return [quoted_name(*name.split(".", 1)) for name in names]


def _is_the_owners(runtime: TenantRuntime, name: str) -> bool:
    """Whether a name is that of a temporary view which the lake's owner may read."""
    session = runtime.spark.session
    if session is None or runtime.tenant != DEFAULT_TENANT or fold(name).startswith(_OURS):
        return False
    return bool(session.catalog.tableExists(types.quote(name)))


def _system_frame(lake: Lake, fail: _Fail, reference: TableReference) -> DataFrame:
    known = SYSTEM_TABLES
    if fold(reference.name) not in known:
        raise fail(
            f"there is no table tailrace.{reference.name}{did_you_mean(reference.name, known)}",
            valid=[f"tailrace.{name}" for name in known],
        )
    kinds = pa.schema(list(arrow_types(known[fold(reference.name)]).items()))
    rows = pa.Table.from_pylist(system_rows(lake.runtime, fold(reference.name)), schema=kinds)
    return local_frame(lake.runtime, rows)


def _snapshot(lake: Lake, fail: _Fail, version: tuple[str, str]) -> int:
    """The snapshot that `VERSION AS OF …` or `TIMESTAMP AS OF …` means."""
    kind, value = version
    if not value:
        raise fail(f"{kind} AS OF takes a literal, no expression")
    if "VERSION" in kind:
        if not value.isdecimal() or int(value) > _LARGEST:
            raise fail(f"VERSION AS OF takes a snapshot's number, not {value!r}")
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        hint = "write it like '2026-01-31 12:00:00', in UTC if it names no zone"
        raise fail(f"{value!r} is no time", hint=hint) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    ids = [one.id for one in lake.snapshots() if one.time <= moment]
    if not ids:
        raise fail(f"the lake has no snapshot as old as {value}")
    return int(ids[-1])
