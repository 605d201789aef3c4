"""`tailrace doctor`: see `checks`."""

from __future__ import annotations

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption


def doctor(lake: LakeOption = None, output: OutputOption = Output.TEXT) -> None:
    """Check Java, Spark, its Python workers, the catalog and the storage, and say how to fix each.

    Without a lake, a temporary one is used. The exit status is 1 if something is wrong.

    Example: tailrace doctor --lake shop.lake
    """
    from tailrace.cli.checks import examine

    if not examine(lake, as_json=output is Output.JSON):
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Enter the command."""
    app.command()(doctor)
