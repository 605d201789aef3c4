"""The command that compacts, or says what is worth it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened

_CANCELLED = "cancelled: what was compacted by then stays so"


def maintain(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]…", help="Tables and views; by default all of them."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only files that may have rows like these.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Leave no file small, or overlapping with another.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and why.")
    ] = False,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compact small files, and those with many deleted rows. A lake that is served does so itself.

    Examples:

      tailrace maintain --dry-run

      tailrace maintain orders --where "day >= '2026-11-01'" --full
    """
    from tailrace.cli.printing import rows_out, say
    from tailrace.cli.spark import cancellable, working

    rows: list[dict[str, Any]] = []
    with opened(lake, tenant=tenant) as found, working(found) as doing:
        for name in names or [*found.tables(), *found.views()]:
            if not dry_run:
                doing(f"compacting {name}")
            compact = partial(found.maintain, name, where=where, full=full, dry_run=dry_run)
            rows += [one.to_dict() for one in cancellable(found, compact, message=_CANCELLED)]
    columns = ["table", "reason", "files", "rows"] + ([] if dry_run else ["into", "bytes"])
    shown = [{name: row[name] for name in columns} for row in rows]
    rows_out(shown, columns, as_json=output is Output.JSON)
    if not rows and output is Output.TEXT:
        say("nothing to do")
