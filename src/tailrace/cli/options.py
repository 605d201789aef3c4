"""Options that many commands share, and the lake that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.address import is_directory
from tailrace.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from tailrace.lake import Lake
    from tailrace.store.runtime import TenantCatalog

DEFAULT_LAKE = "lake"
VARIABLE = "TAILRACE_LAKE"


class Output(StrEnum):
    """What is printed."""

    TEXT = "text"  # tables, for people
    JSON = "json"  # for programs


LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        "-l",
        metavar="LAKE",
        help=f"A directory, or postgresql://…; by default ${VARIABLE}, then ./{DEFAULT_LAKE}.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="PLACE",
        help="Where a new lake's objects go: a directory or s3://bucket/prefix.",
    ),
]
TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Act as this tenant.")
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Tables for people, or JSON for programs.")
]


def place_of(lake: str | None) -> str:
    """The lake that an option, the environment or the default names."""
    return lake or os.environ.get(VARIABLE) or DEFAULT_LAKE


@contextmanager
def opened(
    lake: str | None,
    *,
    tenant: str | None = None,
    data: str | None = None,
    create: bool = False,
) -> Iterator[Lake]:
    """The open lake. Only some commands may create one that does not exist."""
    place = place_of(lake)
    if is_directory(place) and not create:
        check_there(place, by_default=lake is None)
    from tailrace.lake import connect

    options = {"tenant": tenant} if tenant else {}
    with connect(place, data=data, **options) as found:  # type: ignore[arg-type]
        yield found


@contextmanager
def opened_catalog(lake: str | None, *, tenant: str | None = None) -> Iterator[TenantCatalog]:
    """The catalog of a lake that exists, for commands that only list: they load nothing else."""
    place = place_of(lake)
    if is_directory(place):
        check_there(place, by_default=lake is None)
    from tailrace.parts import catalog_of

    options = {"tenant": tenant} if tenant else {}
    with catalog_of(place, **options) as found:
        yield found


def check_there(place: str, *, by_default: bool) -> None:
    """Raise unless there is a lake: a misspelled name must not create one."""
    directory = Path(place).expanduser()
    if (directory / "catalog.sqlite").is_file():
        return
    if directory.exists() and not directory.is_dir():
        raise InvalidError(f"{place} is a file: a lake is a directory")
    advice = f"name it with --lake, or set ${VARIABLE}" if by_default else "check the name"
    raise NotFoundError(f"there is no lake at {place}: {advice}; tailrace sql creates one")
