"""`tailrace configure`: show or change what holds for a whole lake."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Annotated

import typer

from tailrace.cli.options import LakeOption, Output, OutputOption, opened

_Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="As in snapshot_retention=30d; none: show all."),
]


def configure(
    changes: _Changes = None, lake: LakeOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Show or change how long the lake keeps things and waits for them.

    Example: tailrace configure snapshot_retention=30d object_grace=2h
    """
    from tailrace.cli.printing import rows_out
    from tailrace.configuration import FLOORS, Configuration

    wanted = dict(_read(change) for change in changes or [])
    with opened(lake) as found:
        now = found.configure(**wanted) if wanted else found.configuration
    default = Configuration()
    rows = [
        {
            "name": field.name,
            "value": str(getattr(now, field.name)),
            "default": str(getattr(default, field.name)),
            "least": str(FLOORS[field.name]),
        }
        for field in fields(now)
    ]
    rows_out(rows, list(rows[0]), as_json=output is Output.JSON)


def _read(change: str) -> tuple[str, timedelta]:
    from tailrace.errors import InvalidError
    from tailrace.propagation.trigger import parse_interval

    name, mark, value = change.partition("=")
    if not mark:
        raise InvalidError(f"{change!r} is not NAME=VALUE, as in snapshot_retention=30d")
    return name, timedelta(0) if value == "0" else parse_interval(value)
