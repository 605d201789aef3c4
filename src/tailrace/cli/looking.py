"""Commands that look inside: explain, verify, doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, TenantOption, opened

NameArgument = Annotated[str, typer.Argument(metavar="VIEW", help="A view: schema.name.")]


def explain(
    view: NameArgument,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """How a view is kept fresh, and why not better.

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
        list[str] | None, typer.Argument(metavar="[VIEW]…", help="Views; all, if none is named.")
    ] = None,
    lake: LakeOption = None,
    tenant: TenantOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare views with a recompute of their queries at the snapshot that they reflect.

    The exit status is 1 if one differs.

    Example: tailrace verify sales.by_customer
    """
    from tailrace.cli.fixes import in_commands
    from tailrace.cli.printing import document
    from tailrace.cli.spark import working

    ok = True
    reports = []
    with opened(lake, tenant=tenant) as found, working(found) as doing:
        for name in names or found.views():
            doing(f"verifying {name}")
            report = found.view(name).verify()
            ok = ok and report.ok
            reports.append(report)
            if output is Output.TEXT:
                typer.echo(report.said(in_commands))
    if output is Output.JSON:
        document([report.to_dict() for report in reports])
    if not ok:
        raise typer.Exit(1)


def doctor(lake: LakeOption = None, output: OutputOption = Output.TEXT) -> None:
    """Check Java, Spark, Python workers, the catalog and the storage; say how to mend each.

    Without a lake, what a lake needs is checked. The exit status is 1 if something is wrong.
    """
    from tailrace.cli.doctor import examine

    if not examine(lake, as_json=output is Output.JSON):
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Enter the commands."""
    for command in (explain, verify, doctor):
        app.command()(command)
