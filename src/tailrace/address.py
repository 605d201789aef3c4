"""Where lakes and their objects lie: directories told from addresses, shown without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tailrace.arguments import show
from tailrace.errors import Action, Fix, InvalidError

# What a lake in a directory has its catalog in.
CATALOG_FILE = "catalog.sqlite"
# A URL that lacks a slash, or libpq's own notation.
_MEANT = re.compile(r"postgres\w*(\+\w+)?:|(host|port|user|password|dbname)\s*=")
# What objects in a bucket are reached by.
_REMOTE = ("s3", "s3a", "gs", "az", "abfs", "abfss")


def is_directory(lake: str | Path) -> bool:
    """Whether a lake is in a directory. A text that only resembles an address is refused.

    It may hold a password, so it must neither name a directory nor appear in a message.
    """
    if isinstance(lake, str) and "://" in lake:
        return False
    if _MEANT.match(str(lake)):
        raise InvalidError(
            "a lake is a directory or postgresql://user@host/database: this looks like an address "
            "in another form"
        )
    return True


def is_missing(lake: str | Path) -> bool:
    """Whether a lake is in a directory, and not there."""
    return is_directory(lake) and not (absolute(lake) / CATALOG_FILE).is_file()


def shown(lake: str) -> str:
    """A lake's address without the user, the password and the options."""
    kind, mark, rest = lake.partition("://")
    return f"{kind}://{rest.rpartition('@')[2].partition('?')[0]}" if mark else lake


def is_remote(place: str) -> bool:
    """Whether a place for objects is in a bucket."""
    return urlsplit(place).scheme in _REMOTE


def normalize_data_path(place: str | Path) -> str:
    """A place for objects as the catalog stores it: absolute, with a slash at the end."""
    text = str(place)
    scheme, colon, _ = text.partition(":")
    if "://" not in text and not (colon and scheme in (*_REMOTE, "file")):
        return f"{absolute(text)}/"
    parts = split_place(text)
    if parts.scheme == "file":
        return f"{absolute(unquote(parts.path))}/"
    if parts.query or parts.fragment:
        raise InvalidError(
            "a place for objects is written as s3://bucket/prefix, without ? and #",
            fix=Fix(Action.HIDE_CREDENTIALS),
        )
    if parts.scheme not in _REMOTE:
        raise InvalidError(f"cannot store objects at {text!r}: give a directory, file:// or s3://")
    return text.rstrip("/") + "/"


def split_place(url: str) -> SplitResult:
    """The parts of a URL of objects. Of one with credentials in it nothing is repeated."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidError("cannot read this URL: give a path, file:// or s3://") from None
    # Only Azure's places have an @ (container@account), and none has a colon.
    if parts.scheme != "file" and (not parts.netloc or ":" in parts.netloc):
        raise InvalidError(
            "a place for objects is written as s3://bucket/prefix",
            fix=Fix(Action.HIDE_CREDENTIALS),
        )
    return parts


def absolute(place: str | Path) -> Path:
    """A local path from the root on; ~ is the user's home."""
    try:
        return Path(place).expanduser().absolute()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidError(f"there is no such path: {show(str(place))}: {error}") from error
