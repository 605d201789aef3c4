"""A query as it was written, with the tables that it names in place of their names.

Only names are replaced, and comments left out: all else reaches Spark letter by letter, so that a
query means what Spark says it means. Spark looks up no name itself (`store.spark_text`), but for
the lake's owner, whose session it is, temporary views.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace import spark_sql
from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql import types
from tailrace.spark_sql.lexer import RefusedError, without_comments
from tailrace.sql import searches, system
from tailrace.sql.fault import Span, nearest
from tailrace.sql.fixes import in_sql
from tailrace.sql.script import tokens_of
from tailrace.sql.searches import Call
from tailrace.sql.shown import Shown
from tailrace.store.lookup import DEFAULT_TENANT
from tailrace.store.runtime import TenantRuntime
from tailrace.store.schema import fold, quoted_name, split_name
from tailrace.store.spark_scan import local_frame
from tailrace.store.spark_text import check_query, check_registered, check_settings, named_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.lake import Lake

_WORDS_OF_A_VERSION = ("FOR", "VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME", "AS", "OF")
_LARGEST = 2**63 - 1
_OPERATORS = ("+", "-", "*", "/", "||")
# What the names of temporary views begin with that we, or PySpark for us, make of tables.
_OURS = ("tailrace_", "_pyspark_")


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """A piece of the query, and what stands in its place."""

    span: Span
    new: str


@dataclass(frozen=True, kw_only=True)
class _Named:
    """A table that a query names."""

    tree: exp.Table
    schema: str | None
    name: str
    span: Span  # of the name

    @property
    def full(self) -> str:
        return quoted_name(self.schema or "main", self.name)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a table is named, for errors."""

    sql: str
    span: Span
    shown: Shown

    def fault(self, message: str, *, valid: Iterable[str] = (), hint: str = "") -> InvalidError:
        return self.shown.fault(self.sql, self.span, message, valid=valid, hint=hint)


def frame_of(
    lake: Lake,
    sql: str,
    args: Mapping[str, Any] | None = None,
    *,
    given: Mapping[str, DataFrame] | None = None,
    shown: Shown | None = None,
    target: str | None = None,
) -> DataFrame:
    """The DataFrame of a query. `given` are frames under names that go before the lake's.

    `target` is a table that one of them stands for, under its own name. `shown` is the text that
    errors show, if that is not the query's own.
    """
    shown = shown or Shown(text=sql, offset=0)
    calls = searches.calls_of(sql, shown)
    sql = without_comments(searches.without_calls(sql, calls))
    tree = parse(sql, shown)
    try:
        check_registered(lake.runtime.spark, check_query(sql, tree))
    except RefusedError as error:
        span = Span(start=error.start, end=error.end)
        raise shown.fault(sql, span, error.message, hint=error.hint) from error
    _check_calls(tree, calls)
    frames_given = {fold(name): frame for name, frame in (given or {}).items()}
    frames_given |= {call.stand_in: call.frame(lake, args or {}) for call in calls}
    own = set() if target is None else {_folded(*split_name(target))}
    aliases = {call.stand_in: call.function for call in calls}
    text, frames = _with_frames(lake, sql, tree, frames_given, shown, own, aliases)
    left = _args_left(tree, calls, args or {})
    check_settings(lake.spark, sql, tree)
    with shown.spark_faults():
        return lake.spark.sql(text, left or None, **frames)


def _check_calls(tree: exp.Expr, calls: Iterable[Call]) -> None:
    """A search stands where a table may."""
    tables = {named.name: named for named in _named_tables(tree)}
    for call in calls:
        if call.stand_in not in tables:
            raise call.fault(
                f"{call.function} gives a table: it goes into a FROM or a JOIN",
                hint=f"as in FROM {call.function}(…) AS s",
            )


def _args_left(tree: exp.Expr, calls: Iterable[Call], args: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only searches use, which may be values that Spark has no word for."""
    used = {name for call in calls for name in call.parameters}
    used -= {str(one.this) for one in tree.find_all(exp.Placeholder)}
    return {name: value for name, value in args.items() if name not in used}


def parse(sql: str, shown: Shown) -> exp.Expr:
    """The tree of a query, which is only looked at."""
    try:
        return spark_sql.parse_one(sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise _parse_fault(sql, shown, first) from error


def _parse_fault(sql: str, shown: Shown, facts: Mapping[str, Any]) -> InvalidError:
    fragment = str(facts.get("highlight") or "")
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
    return shown.fault(sql, span, message)


# --- the tables of a query -----------------------------------------------------------------------


def _named_tables(tree: exp.Expr) -> Iterator[_Named]:
    for table in named_tables(tree):
        name, schema = table.this, table.args.get("db")
        first = schema if schema is not None else name
        if table.args.get("catalog") is not None:
            first = table.args["catalog"]
        yield _Named(
            tree=table,
            schema=None if schema is None else schema.name,
            name=name.name,
            span=Span(start=first.meta["start"], end=name.meta["end"] + 1),
        )


def _with_frames(
    lake: Lake,
    sql: str,
    tree: exp.Expr,
    given: Mapping[str, DataFrame],
    shown: Shown,
    plain: set[tuple[str, str]],
    aliases: Mapping[str, str],
) -> tuple[str, dict[str, DataFrame]]:
    tokens = tokens_of(sql)
    views = {fold(view) for view in _names(lake.views())}
    frames: dict[str, DataFrame] = {}
    edits: list[_Edit] = []
    seen: dict[tuple[str, str | None], str] = {}
    # `plain` are tables that columns may name with their schema, `aliases` the names of others.
    for named in _named_tables(tree):
        place = next(n for n, t in enumerate(tokens) if t.end + 1 == named.span.end)
        version, until = _version(tokens, place + 1)
        key = (fold(named.full), version)
        if key not in seen:
            where = _Place(sql=sql, span=named.span, shown=shown)
            frame = _frame(lake, where, named, version, given, views)
            if frame is None:
                continue
            seen[key] = f"tailrace_{len(frames)}"
            frames[seen[key]] = frame
        edits.append(_Edit(span=Span(start=named.span.start, end=until), new=f"{{{seen[key]}}}"))
        if named.tree.args.get("alias") is None:
            alias = aliases.get(named.name, named.name)
            after = _after_sample(tokens, place, until)
            edits.append(
                _Edit(
                    span=Span(start=after, end=after),
                    new=f" AS {_escaped(types.quote(alias))}",
                )
            )
            plain.add(_folded(named.schema or "main", named.name))
    edits += _without_schemas(tree, plain)
    return (_edited(sql, edits) if frames else sql), frames


def _folded(schema: str, name: str) -> tuple[str, str]:
    return fold(schema), fold(name)


def _without_schemas(tree: exp.Expr, plain: set[tuple[str, str]]) -> Iterator[_Edit]:
    """`sales.orders.id` is `orders.id` once the table stands under its alias."""
    for column in tree.find_all(exp.Column):
        # With a field of a struct, sqlglot calls the schema a catalog.
        parts = [column.args.get(name) for name in ("catalog", "db", "table")]
        for schema, table in itertools.pairwise(part for part in parts if part is not None):
            if "start" in schema.meta and (fold(schema.name), fold(table.name)) in plain:
                span = Span(start=schema.meta["start"], end=table.meta["start"])
                yield _Edit(span=span, new="")
                break


def _version(tokens: list[Token], place: int) -> tuple[str | None, int]:
    """What follows a table's name to say when, and where that ends."""
    until = tokens[place - 1].end + 1
    words = []
    while place < len(tokens) and tokens[place].text.upper() in _WORDS_OF_A_VERSION:
        words.append(tokens[place].text.upper())
        place += 1
    if len(words) < 3 or words[-2:] != ["AS", "OF"] or place >= len(tokens):
        return None, until
    value, after = tokens[place], "".join(token.text for token in tokens[place + 1 : place + 2])
    is_literal = value.token_type in (TokenType.NUMBER, TokenType.STRING)
    text = value.text if is_literal and after not in _OPERATORS else ""
    return f"{words[-3]} {text}", value.end + 1


def _after_sample(tokens: list[Token], place: int, until: int) -> int:
    """An alias comes after a TABLESAMPLE (…)."""
    rest = [token for token in tokens[place:] if token.start >= until]
    if not rest or rest[0].text.upper() != "TABLESAMPLE":
        return until
    depth = 0
    for token, after in zip(rest[1:], [*rest[2:], None], strict=True):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        more = after is not None and after.text.upper() in ("REPEATABLE", "(")
        if depth == 0 and token.text == ")" and not more:
            return token.end + 1
    return until


def _frame(
    lake: Lake,
    place: _Place,
    named: _Named,
    version: str | None,
    given: Mapping[str, DataFrame],
    views: set[str],
) -> DataFrame | None:
    if named.schema is None and fold(named.name) in given:
        if version is not None:
            raise place.fault("VERSION AS OF is for tables", hint="a search takes at => 17")
        return given[fold(named.name)]
    if named.tree.args.get("catalog") is not None:
        raise place.fault("a name has at most two parts: schema.name")
    at = None if version is None else _snapshot(lake, place, version)
    if fold(named.schema or "") == system.SCHEMA:
        return _system_frame(lake, place, named)
    if fold(named.full) in views:
        return lake.view(named.full).to_df(at)
    try:
        return lake.table(named.full).to_df(at)
    except InvalidError as error:
        raise place.fault(error.said(in_sql)) from error
    except NotFoundError as error:
        if at is not None and fold(named.full) in {fold(name) for name in _names(lake.tables())}:
            raise place.fault(error.said(in_sql)) from error
        if at is not None and fold(named.full) in {fold(n) for n in _names(lake.tables(at))}:
            raise place.fault(f"{named.full} has been dropped since") from error
        if named.schema is None and _is_the_owners(lake.runtime, named.name):
            return None
        known = [*lake.tables(), *lake.views()]
        shown = named.full if named.schema is not None else f"main.{named.name}"
        near = nearest(shown, known) or nearest(named.name, [n.rpartition(".")[2] for n in known])
        raise place.fault(
            f"there is no table or view {shown}{near}",
            hint="SHOW TABLES and SHOW VIEWS list what there is",
        ) from error


def _names(names: list[str]) -> list[str]:
    return [quoted_name(*name.split(".", 1)) for name in names]


def _is_the_owners(runtime: TenantRuntime, name: str) -> bool:
    """Whether a name is that of a temporary view which the lake's owner may read."""
    session = runtime.spark.session
    if session is None or runtime.tenant != DEFAULT_TENANT or fold(name).startswith(_OURS):
        return False
    return bool(session.catalog.tableExists(types.quote(name)))


def _system_frame(lake: Lake, place: _Place, named: _Named) -> DataFrame:
    if fold(named.name) not in system.TABLES:
        raise place.fault(
            f"there is no table tailrace.{named.name}{nearest(named.name, system.TABLES)}",
            valid=[f"tailrace.{name}" for name in system.TABLES],
        )
    kinds = pa.schema(list(system.TABLES[fold(named.name)].items()))
    rows = pa.Table.from_pylist(system.rows(lake.runtime, fold(named.name)), schema=kinds)
    return local_frame(lake.runtime, rows)


def _snapshot(lake: Lake, place: _Place, version: str) -> int:
    """The snapshot that `VERSION AS OF …` or `TIMESTAMP AS OF …` means."""
    kind, _, value = version.partition(" ")
    if not value:
        raise place.fault(f"{kind} AS OF takes a literal, no expression")
    if "VERSION" in kind:
        if not value.isdecimal() or int(value) > _LARGEST:
            raise place.fault(f"VERSION AS OF takes a snapshot's number, not {value!r}")
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        hint = "write it like '2026-01-31 12:00:00', in UTC if it names no zone"
        raise place.fault(f"{value!r} is no time", hint=hint) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    found = [one.id for one in lake.snapshots() if one.time <= moment]
    if not found:
        raise place.fault(f"the lake has no snapshot as old as {value}")
    return int(found[-1])


# --- the text that Spark gets --------------------------------------------------------------------


def _edited(source: str, edits: list[_Edit]) -> str:
    """The query with pieces replaced. Braces of the user's own are doubled, as Spark wants it."""
    pieces, place = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end)):
        pieces += [_escaped(source[place : edit.span.start]), edit.new]
        place = edit.span.end
    pieces.append(_escaped(source[place:]))
    return "".join(pieces)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
