"""Rows, messages and errors, on standard output and standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace.errors import Action, Fix, TailraceError

# Standard error, wherever that goes while others are kept from it.
_errors = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
# Wide enough for any row: what is piped to a program or a file is never cut.
_NO_LIMIT = 100_000


def console(*, error: bool = False) -> Console:
    """Where a person reads; plain text without colours where nobody does."""
    stream = _errors if error else sys.stdout
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return Console(file=stream, highlight=False)
    return Console(
        file=stream, highlight=False, width=_NO_LIMIT, no_color=True, force_terminal=False
    )


def say(message: str) -> None:
    """A message, on standard error."""
    console(error=True).print(Text(message))


def table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Rows as a table."""
    where = console()
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        numbers = [row[name] for row in rows if row.get(name) is not None]
        right = bool(numbers) and all(_is_number(value) for value in numbers)
        made.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(row.get(name)) for name in names))
    where.print(made)


def document(value: Any) -> None:
    """One JSON document, on a line of its own."""
    text = json.dumps(_finite(value), default=plain, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def rows_out(rows: Iterable[Mapping[str, Any]], names: Sequence[str], *, as_json: bool) -> None:
    """Rows, in the form that was asked for."""
    found = [dict(row) for row in rows]
    if as_json:
        document(found)
    else:
        table(found, names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, Text):
        return value
    return Text(shown(value))


def shown(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}" if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, default=plain, ensure_ascii=False)
    return str(value)


def plain(value: Any) -> Any:
    """A value that JSON has no word for. A decimal is a text: a number would lose digits."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _finite(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


_COMMANDS = {
    Action.LIST_TABLES: "tailrace tables lists what there is",
    Action.LIST_VIEWS: "tailrace views lists what there is",
    Action.LIST_TABLES_AND_VIEWS: "tailrace tables and tailrace views list what there is",
    Action.LIST_INDEXES: "tailrace indexes lists what there is",
    Action.LIST_JOBS: "tailrace jobs shows all",
    Action.LIST_TASKS: "tailrace tasks shows the last",
    Action.SHOW_RETENTION: (
        "tailrace configure shows how long they are kept, as snapshot_retention"
    ),
    Action.CREATE_SCHEMA: "create it first, with tailrace sql",
    Action.CREATE_ANOTHER_SCHEMA: (
        "create another with tailrace sql, and name it before the table"
    ),
    Action.READ_VIEW: "tailrace sql reads it",
    Action.CREATE_VIEW_AGAIN: "replace it, with tailrace sql",
    Action.BUILD_VIEW: "tailrace refresh {name} builds it",
    Action.RESUME_VIEW: "resume its job first, with tailrace sql",
    Action.BUILD_INDEX: "tailrace refresh builds it now",
    Action.LET_INDEX_CATCH_UP: (
        "tailrace refresh lets it catch up; without --latest, a search takes what it has"
    ),
    Action.SEARCH_LATEST: (
        "--latest searches the table as it is; tailrace refresh builds the index anew"
    ),
    Action.REBUILD_INDEX: "refresh the index in full, with tailrace sql",
    Action.ASK_FOR_OUTCOME: (
        "before trying again, look with tailrace snapshots whether its changes are there"
    ),
    Action.CHOOSE_PORT: "choose another with --port or --host",
    Action.GIVE_DATA: "give --data, a directory or s3://bucket/…",
    Action.LEAVE_DATA_OUT: "leave --data out, or give the same place",
    Action.CHECK_STORAGE_OPTIONS: (
        "check the credentials in the environment (AWS_ACCESS_KEY_ID, …)"
    ),
    Action.HIDE_CREDENTIALS: "credentials go into the environment (AWS_ACCESS_KEY_ID, …)",
    Action.SKIP_HEADER: "add --no-header",
    Action.NAME_REPORT: "give --report and --on-error report, or neither",
    Action.LEAVE_OPTION_OUT: "--{name} {of} needs one",
    Action.CHANGE_OPTION: "change --{name}",
    Action.LEAVE_ROWS_OUT: "fix the rows, or load the others with --on-error skip or report",
}


def in_commands(fix: Fix) -> str:
    """A fix as a command, or as an option of one."""
    is_option = fix.action in (Action.LEAVE_OPTION_OUT, Action.CHANGE_OPTION)
    name = fix.name.replace("_", "-") if is_option else fix.name
    return replace(fix, name=quote(name), of=quote(fix.of)).worded(_COMMANDS)


def message_of(error: Exception) -> str:
    """What an error says on the command line; one that comes from a statement speaks SQL."""
    if isinstance(error, TailraceError):
        error.use(in_commands)
    return str(error)
