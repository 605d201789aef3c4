"""The entry point: all commands, and what happens when one fails."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import Annotated

import typer

from tailrace.cli import configure, demo, doctor, listing, load, search, serve, sql, views
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


for module in (demo, serve, sql, load, views, search, listing, configure, doctor):
    module.add_to(app)


def main() -> None:
    """Run a command. The exit status is 0, 1 (it failed) or 2 (the call was wrong)."""
    # Python would look for garbage in everything that was imported, and free it piece by piece: a
    # quarter of the time that a list takes. Registered first, so that it runs after what others do.
    atexit.register(gc.freeze)
    try:
        app()
    except TailraceError as error:
        from tailrace.cli.fixes import message_of
        from tailrace.cli.printing import say

        say(f"error: {message_of(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        sys.exit(0)
