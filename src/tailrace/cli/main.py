"""The entry point: all commands, those that are one call, and what happens when one fails."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.configure import configure
from tailrace.cli.listing import (
    indexes,
    iterations,
    jobs,
    snapshots,
    status,
    tables,
    tasks,
    views,
)
from tailrace.cli.load import load
from tailrace.cli.maintain import maintain
from tailrace.cli.options import LakeOption, Output, OutputOption, opened
from tailrace.cli.search import search
from tailrace.cli.sql import sql
from tailrace.cli.views import explain, refresh, verify
from tailrace.errors import TailraceError
from tailrace.version import __version__

_ABOUT = """Keep what is derived from a lake's tables fresh, on Apache Spark.

Begin with [bold]tailrace demo[/], or with your own data:

  tailrace load orders.csv orders --key id
  tailrace sql -c "CREATE MATERIALIZED VIEW busy AS SELECT customer, count(*) AS n …"
  tailrace serve
"""

app = typer.Typer(
    name="tailrace",
    help=_ABOUT,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


@app.callback()
def _every_call(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


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


def doctor(lake: LakeOption = None, output: OutputOption = Output.TEXT) -> None:
    """Check Java, Spark, its Python workers, the catalog and the storage, and say how to fix each.

    Without a lake, a temporary one is used. The exit status is 1 if something is wrong.

    Example: tailrace doctor --lake shop.lake
    """
    from tailrace.cli.doctor import examine

    if not examine(lake, as_json=output is Output.JSON):
        raise typer.Exit(1)


# In the order of --help.
for command in (
    demo, serve, sql, load, refresh, explain, verify, search, status, tables, views, indexes, jobs,
    iterations, snapshots, tasks, maintain, configure, doctor,
):  # fmt: skip
    app.command()(command)


def main() -> None:
    """Run a command. The exit status is 0, 1 (it failed) or 2 (the call was wrong)."""
    # Python would look for garbage in everything that was imported, and free it piece by piece: a
    # quarter of the time that a list takes. Registered first, so that it runs after what others do.
    atexit.register(gc.freeze)
    try:
        app()
    except TailraceError as error:
        from tailrace.cli.printing import message_of, say

        say(f"error: {message_of(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        sys.exit(0)
