"""`tailrace demo`: a small shop, to see it work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.options import Output, OutputOption


def demo(
    seconds: Annotated[int, typer.Option(min=1, help="How long orders come in.")] = 60,
    scale: Annotated[
        float, typer.Option(min=0.01, help="The size of the shop; 1 is 150,000 order lines.")
    ] = 1,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the lake there, or continue with it.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """See it work: a small shop with live changes, views that follow, and a check of everything.

    Example: tailrace demo --seconds 20 --keep shop.lake
    """
    from tailrace.demo import run

    raise typer.Exit(run(seconds=seconds, scale=scale, keep=keep, output=str(output)))


def add_to(app: typer.Typer) -> None:
    """Enter the command."""
    app.command()(demo)
