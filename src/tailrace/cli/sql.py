"""`tailrace sql`: one statement, a script, or a shell."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.options import (
    DataOption,
    LakeOption,
    Output,
    OutputOption,
    TenantOption,
    opened,
    place_of,
)

if TYPE_CHECKING:
    from tailrace.lake import Lake
    from tailrace.sql.parser import Statement
    from tailrace.sql.result import Result

# A person reads some rows; more of them would only scroll by.
_SHOWN = 1000


def sql(
    command: Annotated[
        str | None, typer.Option("--command", "-c", metavar="SQL", help="Run this and exit.")
    ] = None,
    lake: LakeOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"Rows to show; {_SHOWN} by default, in JSON all.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run SQL: a statement, a script on standard input, or a shell.

    The lake is created if it does not exist.

    Examples:

      tailrace sql -c "SELECT * FROM orders WHERE amount > 100"

      tailrace sql --output json < report.sql
    """
    with opened(lake, tenant=tenant, data=data, create=True) as found:
        if command is None and sys.stdin.isatty():
            from tailrace.cli.shell import shell

            shell(found, place_of(lake), limit=limit)
        else:
            text = command if command is not None else sys.stdin.read()
            run_script(found, text, limit=limit, as_json=output is Output.JSON)


def run_script(lake: Lake, text: str, *, limit: int | None, as_json: bool = False) -> None:
    """Run statements, and print each one's result."""
    from tailrace.sql.parser import statements

    for statement in statements(text):
        _show(lake, statement, limit=limit, as_json=as_json)


def _show(lake: Lake, statement: Statement, *, limit: int | None, as_json: bool) -> None:
    """Run a statement and print what it gives, with the time that it took."""
    from tailrace.cli.printing import document, say, table
    from tailrace.cli.spark import cancellable, working
    from tailrace.sql.result import counted
    from tailrace.sql.statements import run_one

    most = (None if as_json else _SHOWN) if limit is None else limit

    def work() -> tuple[Result, list[dict[str, Any]]]:
        result = run_one(lake, statement)
        return result, result.to_pylist(None if most is None else most + 1)

    started = time.monotonic()
    with working(lake):
        result, rows = cancellable(lake, work)
    took = f"({time.monotonic() - started:.2f} s)"
    if as_json:
        document(rows[0] if result.message else rows[:most])
    elif result.message:
        say(f"{result.message} {took}")
    elif result.text:
        typer.echo(result.text)
        say(took)
    else:
        table(rows[:most], result.columns)
        count = counted(len(rows), "row")
        if most is not None and len(rows) > most:
            count = f"the first {most:,} rows; --limit shows more"
        say(f"{count} {took}")
