"""`tailrace refresh`: bring what is derived up to date."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened


def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]…", help="Views; everything, if none.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Compute all of it again.")] = False,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring views, or everything derived, to the newest snapshot, here and now.

    Examples: tailrace refresh sales.by_customer; tailrace refresh
    """
    from tailrace.cli.printing import rows_out, say
    from tailrace.cli.spark import CancelledError, cancellable, working
    from tailrace.errors import UnavailableError

    if full and not names:
        raise typer.BadParameter("name the views to compute again", param_hint="--full")
    rows: list[dict[str, Any]] = []
    columns = ["view", "strategy", "rows_read", "rows_written", "seconds"]
    try:
        with opened(lake, tenant=tenant) as found, working(found) as doing:
            if not names:
                cancellable(found, found.run_until_fresh)
                say(f"everything is fresh at snapshot {found.snapshot}")
                return
            for name in names:
                doing(f"refreshing {name}")
                view = found.view(name)
                did = cancellable(found, lambda one=view: one.refresh(full=full))  # type: ignore[misc]
                facts = {column: getattr(did, column) for column in columns[1:]}
                rows.append({"view": view.name, **facts})
    except CancelledError as error:
        raise UnavailableError("cancelled: what was refreshed by then stays so") from error
    rows_out(rows, columns, as_json=output is Output.JSON)


def add_to(app: typer.Typer) -> None:
    """Enter the command."""
    app.command()(refresh)
