"""Rows and messages, on standard output and standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
