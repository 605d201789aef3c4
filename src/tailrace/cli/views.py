"""Commands about views: refresh, explain, verify."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened

_ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="A view: schema.name.")]


def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]…", help="Views; by default everything.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute everything.")] = False,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring views, or everything derived, to the newest snapshot.

    Examples:

      tailrace refresh

      tailrace refresh sales.by_customer --full
    """
    from tailrace.cli.printing import rows_out, say
    from tailrace.cli.spark import cancellable, working

    if full and not names:
        raise typer.BadParameter("name the views to recompute", param_hint="--full")
    rows: list[dict[str, Any]] = []
    columns = ["view", "strategy", "rows_read", "rows_written", "seconds"]
    message = "cancelled: what was refreshed by then stays so"
    with opened(lake, tenant=tenant) as found, working(found) as doing:
        if not names:
            cancellable(found, found.run_until_fresh, message=message)
            say(f"everything is fresh at snapshot {found.snapshot}")
            return
        for name in names:
            doing(f"refreshing {name}")
            view = found.view(name)
            did = cancellable(found, partial(view.refresh, full=full), message=message)
            facts = {column: getattr(did, column) for column in columns[1:]}
            rows.append({"view": view.name, **facts})
    rows_out(rows, columns, as_json=output is Output.JSON)


def explain(
    view: _ViewArgument,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Explain how a view is kept fresh, and why it takes no cheaper way.

    Example: tailrace explain sales.by_customer
    """
    from tailrace.cli.printing import document

    with opened(lake, tenant=tenant) as found:
        made = found.view(view).explain()
    if output is Output.JSON:
        document(made.to_dict())
    else:
        typer.echo(str(made))


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]…", help="Views; by default all.")
    ] = None,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare views with their queries, recomputed at the snapshot that the views reflect.

    The exit status is 1 if one differs.

    Example: tailrace verify sales.by_customer
    """
    from tailrace.cli.printing import document, in_commands
    from tailrace.cli.spark import working

    reports = []
    with opened(lake, tenant=tenant) as found, working(found) as doing:
        for name in names or found.views():
            doing(f"verifying {name}")
            report = found.view(name).verify()
            reports.append(report)
            if output is Output.TEXT:
                typer.echo(report.said(in_commands))
    if output is Output.JSON:
        document([report.to_dict() for report in reports])
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
