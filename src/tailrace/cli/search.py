"""`tailrace search`: ask an index. Only a condition needs Spark."""

from __future__ import annotations

import html
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    from tailrace.indexes.results import Found


def search(
    index: Annotated[
        str, typer.Argument(metavar="INDEX", help="An index: its name, or schema.table.name.")
    ],
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="Words, or a JSON list for a vector index; - reads it from the input.",
        ),
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", help="The most rows to show.")] = 10,
    where: Annotated[
        str | None, typer.Option("--where", metavar="COND", help="A condition in Spark SQL.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="Columns to show beside the key."),
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="As of the newest commit, indexed or not.")
    ] = False,
    at: Annotated[int | None, typer.Option("--at", min=0, help="As of this snapshot.")] = None,
    highlight: Annotated[
        bool, typer.Option("--highlight", help="Add the passage that fits best.")
    ] = False,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Search a full-text or vector index, and show the best rows first.

    Without --columns, all columns are shown except indexed vectors.

    Examples:

      tailrace search note_ft "late delivery" --limit 5

      tailrace search note_ft "+late -gift" --where "region = 'eu'" --columns note --highlight

      tailrace search docs.page.emb "[0.1, 0.2, 0.3]" --latest
    """
    from tailrace.cli.printing import console, rows_out, say
    from tailrace.cli.spark import working
    from tailrace.indexes.results import HIGHLIGHT
    from tailrace.sql.result import counted

    if latest and at is not None:
        raise typer.BadParameter("choose --latest or a snapshot", param_hint="--at")
    given = sys.stdin.read() if query == "-" else query
    started = time.monotonic()
    with opened(lake, tenant=tenant) as found, working(found):
        asked = found.find_index(index)
        value = given if asked.using == "fulltext" else _vector(given)
        freshness = "latest" if latest else "indexed"
        hits = asked.find(value, limit, where=where, freshness=freshness, at=at)
        wanted = _columns(hits, columns)
        rows = asked.result(hits, value, columns=wanted, highlight=highlight)
        newest = found.snapshot
    shown = rows.to_pylist()
    if output is Output.TEXT:
        score = rows.column_names[hits.hits.keys.num_columns]
        shown = [{**row, score: round(row[score], 4) + 0.0} for row in shown]  # never -0
        if highlight and console().is_terminal:
            shown = [{**row, HIGHLIGHT: _marked(row[HIGHLIGHT])} for row in shown]
    rows_out(shown, rows.column_names, as_json=output is Output.JSON)
    if output is Output.TEXT:
        behind = hits.snapshot < newest and at is None
        more = "; the index is behind, --latest searches all" if behind else ""
        took = time.monotonic() - started
        say(f"{counted(rows.num_rows, 'row')} as of snapshot {hits.snapshot}{more} ({took:.2f} s)")


def _vector(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        raise InvalidError("a vector index is searched for a JSON list, as in '[0.1, 0.2, 0.3]'")
    return value


def _columns(found: Found, given: str | None) -> list[str]:
    """The columns to show; vectors are for machines."""
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    return [c.name for c in found.table.columns if c.dimension is None]


def _marked(text: str | None) -> Any:
    """A highlight, which is HTML, as a terminal shows it."""
    from rich.text import Text

    made = Text()
    for number, part in enumerate(re.split(r"</?b>", text or "")):
        made.append(html.unescape(part), style="bold yellow" if number % 2 else "")
    return made
