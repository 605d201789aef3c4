"""What a named view is: the text of a query, in DuckDB's dialect, that other engines see as a view.

Views and tables share one namespace. A view is never altered: one that replaces another has
another id. The text is stored as it is; who makes it knows what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.store.names import check_name

DIALECT = "duckdb"


@dataclass(frozen=True, kw_only=True)
class ViewInfo:
    """A view as it is at one snapshot. Ids below 0 are of views not committed yet."""

    id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    sql: str
    columns: tuple[str, ...] = ()  # other names for the query's columns; empty: its own

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def check_definition(sql: object, columns: Iterable[str]) -> tuple[str, ...]:
    """Refuse what cannot be stored; returns the columns."""
    if not isinstance(sql, str) or not sql.strip() or "\0" in sql:
        raise InvalidError(f"a view needs the text of a query, not {show(sql)}")
    names = tuple(columns)
    for name in names:
        check_name(name, "column")
    return names


def write_aliases(names: Sequence[str]) -> str:
    """Column names as the format keeps them: in double quotes, with commas; empty for none."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in names)


def read_aliases(text: str | None) -> tuple[str, ...]:
    """The column names in that form."""
    return tuple(n.replace('""', '"') for n in re.findall(r'"((?:[^"]|"")*)"', text or ""))
