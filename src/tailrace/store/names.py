"""Names of schemas, tables and columns: how they are written and compared, and what is reserved."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase

from tailrace.arguments import LONGEST_NAME, LONGEST_TABLE_NAME, is_text, show
from tailrace.errors import InvalidError

# The schema of the system tables, which no lake has of its own.
OWN_SCHEMA = "tailrace"
# Tailrace's own tables, and its own columns in them, begin with this; users' must not.
OWN_PREFIX = "_tailrace_"

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def check_name(name: object, what: str) -> None:
    """Refuse a name that is empty or too long, or that a catalog cannot store."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not is_text(name):
        raise InvalidError(
            f"a {what} needs a name of 1 to {LONGEST_NAME} characters, not {show(name)}"
        )
    if "${" in name:
        raise InvalidError(f"the {what} name {name!r} has a variable of Spark's: leave out ${{")


def is_hidden(name: str) -> bool:
    """Whether a table of that name is left out of what users see."""
    return fold(name).startswith(OWN_PREFIX)


def check_new_name(name: str, what: str, *, hidden: bool = False) -> None:
    """Refuse a new name that is reserved for hidden tables, or a hidden table without one."""
    check_name(name, what)
    if hidden and not is_hidden(name):
        raise InvalidError(f"the name of a hidden {what} begins with {OWN_PREFIX}, not {name!r}")
    if is_hidden(name) and not hidden:
        raise InvalidError(f"the {what} name {name!r} is reserved: choose another")


def fold(name: str) -> str:
    """The form in which names of schemas and tables are compared: as the catalog's `lower` does.

    Only A to Z, as in SQLite and DuckDB. Columns are compared as Spark does, by all of Unicode.
    """
    return name.translate(_LOWER)


def split_name(name: object) -> tuple[str, str]:
    """`"orders"` is ("main", "orders"); a name with dots in it is quoted with backticks."""
    if not isinstance(name, str):
        raise InvalidError(f"a table's name is text such as 'sales.orders', not {show(name)}")
    if len(name) > LONGEST_TABLE_NAME:
        raise InvalidError(
            f"a table's name has at most {LONGEST_TABLE_NAME} characters, not {len(name):,}: "
            f"{show(name)}"
        )
    parts = re.findall(r"(?:`((?:[^`]|``)+)`|([^.`]+))(?:\.(?!$)|$)", name)
    names = [quoted.replace("``", "`") or plain for quoted, plain in parts]
    if len(names) not in (1, 2) or _joined(parts) != name:
        raise InvalidError(
            f"cannot read the name {name!r}: write schema.table, with `backticks` around dots"
        )
    for part in names:
        check_name(part, "table")
    return ("main", names[0]) if len(names) == 1 else (names[0], names[1])


def quoted_name(schema: str, name: str) -> str:
    """A name that `split_name` reads as these two parts."""
    return _joined(
        [(p.replace("`", "``"), "") if "." in p or "`" in p else ("", p) for p in (schema, name)]
    )


def _joined(parts: list[tuple[str, str]]) -> str:
    return ".".join(f"`{quoted}`" if quoted else plain for quoted, plain in parts)
