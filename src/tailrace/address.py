"""A lake's address: told apart from a directory, and shown without its secrets."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.errors import InvalidError

# A URL that lacks a slash, or libpq's own notation.
_MEANT = re.compile(r"postgres\w*(\+\w+)?:|(host|port|user|password|dbname)\s*=")


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


def shown(lake: str) -> str:
    """A lake's address without the user, the password and the options."""
    kind, mark, rest = lake.partition("://")
    return f"{kind}://{rest.rpartition('@')[2].partition('?')[0]}" if mark else lake
