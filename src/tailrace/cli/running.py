"""Commands that run something for a while: demo, serve."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, opened


def demo(
    seconds: Annotated[int, typer.Option(min=1, help="How long the shop is busy.")] = 60,
    scale: Annotated[
        float, typer.Option(min=0.01, help="How large it is; 1 is 150,000 lines.")
    ] = 1,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the lake there, or go on with it.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """See it work: a small shop, live changes, views that follow, and a check of all of it.

    Example: tailrace demo --seconds 20 --keep shop.lake
    """
    from tailrace.demo import run

    raise typer.Exit(run(seconds=seconds, scale=scale, keep=keep, output=str(output)))


def serve(
    lake: LakeOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="For metrics.")] = 8707,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import what defines your consumers."),
    ] = None,
) -> None:
    """Keep everything fresh, until stopped by Ctrl-C or SIGTERM.

    Metrics for Prometheus are at http://HOST:PORT/metrics.

    Example: tailrace serve --lake shop.lake --import my_consumers
    """
    import sys

    sys.path.insert(0, "")  # a module beside the caller, as `python -m` finds it
    for module in modules or ():
        try:
            import_module(module)
        except (ImportError, ValueError) as error:
            raise typer.BadParameter(
                f"cannot import {module}: {error}", param_hint="--import"
            ) from error
    with opened(lake) as found:
        found.serve(port, host=host)


def add_to(app: typer.Typer) -> None:
    """Enter the commands."""
    for command in (demo, serve):
        app.command()(command)
