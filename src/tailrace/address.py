"""A lake's address: told from a directory, and shown without what is secret in it."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.errors import InvalidError

# With a slash too few, or in the words of libpq.
_MEANT = re.compile(r"postgres\w*(\+\w+)?:|(host|port|user|password|dbname)\s*=")


def is_directory(lake: str | Path) -> bool:
    """Whether a lake is in a directory. What only looks like an address is refused.

    It must not become a directory's name, or be repeated: it may have a password in it.
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
