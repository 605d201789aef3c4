"""Errors as those who write SQL read them: the place, what stands there, what would be valid, and
what to do.

An error quotes what the user wrote, even if another text is run (`QueryText`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from tailrace.errors import Action, Fix, InvalidError
from tailrace.spark_sql.types import quote
from tailrace.store import spark_actions
from tailrace.store.names import split_name

_MOST_MARKED = 60  # letters of a long fragment that are underlined


@dataclass(frozen=True, kw_only=True)
class Span:
    """A piece of a text, from one offset up to another, which is not part of it."""

    start: int
    end: int


def error_at(
    text: str, span: Span, message: str, *, valid: Iterable[str] = (), hint: str = ""
) -> InvalidError:
    """An error that shows the line, the column and the fragment.

    The span may begin at the end of the text, where something is missing.
    """
    before = text[: span.start]
    number = before.count("\n") + 1
    column = span.start - (before.rfind("\n") + 1) + 1
    line = text.split("\n")[number - 1]
    length = min(max(1, span.end - span.start), max(1, len(line) - column + 1), _MOST_MARKED)
    margin = f"{number} | "
    lines = [
        f"line {number}, column {column}: {message}",
        f"  {margin}{line}",
        f"  {' ' * (len(margin) - 2)}| {' ' * (column - 1)}{'^' * length}",
    ]
    options = list(dict.fromkeys(valid))
    if options:
        lines.append(f"valid here: {', '.join(options)}")
    if hint:
        lines.append(hint)
    return InvalidError("\n".join(lines))


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, if a known name is similar."""
    options = {one.casefold(): one for one in known}
    near = get_close_matches(given.casefold(), options, n=1, cutoff=0.6)
    return f"; did you mean {options[near[0]]}?" if near else ""


@dataclass(frozen=True, kw_only=True)
class QueryText:
    """A query, and the script that it is a part of, or put together from parts of."""

    sql: str
    script: str
    offset: int | None = None  # where the query begins; None if it was put together

    def error_at(
        self, span: Span, message: str, *, valid: Iterable[str] = (), hint: str = ""
    ) -> InvalidError:
        """An error at the place of a piece of the query."""
        if self.offset is not None:
            place = Span(start=span.start + self.offset, end=span.end + self.offset)
            return error_at(self.script, place, message, valid=valid, hint=hint)
        fragment = self.sql[span.start : span.end]
        return self._error_at_fragment(fragment, message, valid=valid, hint=hint)

    def _error_at_fragment(
        self, fragment: str, message: str, *, valid: Iterable[str] = (), hint: str = ""
    ) -> InvalidError:
        """An error at the place of a fragment, if that occurs just once."""
        if not fragment or self.script.count(fragment) != 1:
            options = f" (valid: {', '.join(valid)})" if valid else ""
            return InvalidError("\n".join(filter(None, [f"{message}{options}", hint])))
        start = self.script.index(fragment)
        place = Span(start=start, end=start + len(fragment))
        return error_at(self.script, place, message, valid=valid, hint=hint)

    @contextmanager
    def spark_faults(self) -> Iterator[None]:
        """Turn what Spark reports about the query into an InvalidError at its place."""
        from pyspark.errors import PySparkException

        try:
            with spark_actions.spark_faults():
                yield
        except PySparkException as error:
            raise self._error_at_fragment(_fragment(error), _reason(error)) from error


def _fragment(error: Any) -> str:
    """The piece of the query that Spark complains about; empty if it names none."""
    try:
        contexts = error.getQueryContext()
        return str(contexts[0].fragment()) if contexts else ""
    except Exception:  # noqa: BLE001  (not all of Spark's errors know their place)
        return ""


def _reason(error: Any) -> str:
    """Spark's own message, without its codes and the plan."""
    first = str(error).strip().split("SQLSTATE")[0].split("\n")[0].strip()
    if first.startswith("["):
        first = first.partition("]")[2].strip() or first
    return first.rstrip(" ;")


_SQL = {
    Action.LIST_TABLES: "SHOW TABLES lists what there is",
    Action.LIST_VIEWS: "SHOW VIEWS lists what there is",
    Action.LIST_TABLES_AND_VIEWS: "SHOW TABLES and SHOW VIEWS list what there is",
    Action.LIST_INDEXES: "SHOW INDEXES lists what there is",
    Action.LIST_JOBS: "SHOW JOBS shows all",
    Action.LIST_TASKS: "SHOW TASKS shows the last",
    Action.CREATE_SCHEMA: "CREATE SCHEMA {name}",
    Action.CREATE_ANOTHER_SCHEMA: (
        "create another with CREATE SCHEMA, and name it before the table"
    ),
    Action.UPSERT: "use MERGE INTO to replace rows",
    Action.READ_VIEW: "SELECT * FROM {name} reads it",
    Action.DROP_VIEW: "use DROP MATERIALIZED VIEW",
    Action.DROP_READERS_FIRST: "drop them first, or all together with CASCADE",
    Action.REPLACE_VIEW: "CREATE OR REPLACE MATERIALIZED VIEW builds it anew",
    Action.CREATE_VIEW_AGAIN: "create it again with CREATE OR REPLACE MATERIALIZED VIEW",
    Action.BUILD_VIEW: "REFRESH MATERIALIZED VIEW {name} builds it",
    Action.RESUME_VIEW: "RESUME JOB {name} first",
    Action.BUILD_INDEX: "REFRESH INDEX {name} ON {of} builds it now",
    Action.LET_INDEX_CATCH_UP: (
        "REFRESH INDEX {name} ON {of} lets it catch up; freshness => 'indexed' takes what it has"
    ),
    Action.SEARCH_LATEST: (
        "freshness => 'latest' searches the table as it is; REFRESH INDEX {name} ON {of} builds "
        "it anew"
    ),
    Action.REBUILD_INDEX: "REFRESH INDEX … FULL makes the index anew",
    Action.GIVE_DIMENSION: "say how long they will be: WITH (dimension = 128)",
    Action.ASK_FOR_OUTCOME: (
        "before trying again, look with SHOW SNAPSHOTS whether its changes are there"
    ),
}


def in_sql(fix: Fix) -> str:
    """A fix as a statement, or as a part of one."""
    return replace(fix, name=_quoted(fix.name), of=_quoted(fix.of)).worded(_SQL)


def _quoted(name: str) -> str:
    """A name with or without a schema, in backticks where it needs them."""
    parts = split_name(name) if "`" in name else name.split(".", 1)
    return ".".join(part if re.fullmatch(r"\w*", part) else quote(part) for part in parts)
