"""Options that many commands share, and the lake that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.address import absolute, is_missing
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
    place = place_of(lake) if create else existing(lake)
    from tailrace.lake import connect
    from tailrace.store.lookup import DEFAULT_TENANT

    with connect(place, data=data, tenant=tenant or DEFAULT_TENANT) as found:
        yield found


@contextmanager
def opened_catalog(lake: str | None, *, tenant: str | None = None) -> Iterator[TenantCatalog]:
    """The catalog of a lake that exists, for commands that only list: they load nothing else."""
    place = existing(lake)
    from tailrace.parts import catalog_of
    from tailrace.store.lookup import DEFAULT_TENANT

    with catalog_of(place, tenant or DEFAULT_TENANT) as found:
        yield found


def existing(lake: str | None) -> str:
    """The place of a lake that is there: a misspelled name must not create one."""
    place = place_of(lake)
    if not is_missing(place):
        return place
    directory = absolute(place)
    if directory.exists() and not directory.is_dir():
        raise InvalidError(f"{place} is a file: a lake is a directory")
    advice = f"name it with --lake, or set ${VARIABLE}" if lake is None else "check the name"
    raise NotFoundError(f"there is no lake at {place}: {advice}; tailrace sql creates one")
