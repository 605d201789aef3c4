"""`tailrace serve`: keep everything fresh."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from tailrace.cli.options import LakeOption, opened


def serve(
    lake: LakeOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for metrics.")] = 8707,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module that defines your consumers."),
    ] = None,
) -> None:
    """Keep everything fresh until stopped by Ctrl-C or SIGTERM.

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
    """Enter the command."""
    app.command()(serve)
