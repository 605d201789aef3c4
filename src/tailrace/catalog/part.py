"""What one layer keeps in the catalog.

Each layer defines its tables, says since which version of the catalog each is there, and adds what
else a version has changed. `opening` puts the parts of all layers in one order, by version.

The system views are what a lake knows about itself, as views in its database. `SELECT … FROM
tailrace.jobs` reads them, and so can any program that can read the catalog's database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa


def no_views(_dialect: str) -> Mapping[str, str]:
    """For a layer that has nothing to show in a system view."""
    return {}


def new_views(_connection: sa.Connection) -> None:
    """The step to a version with other system views: they are created anew after every step."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A layer's part of the catalog."""

    tables: sa.MetaData  # each with `info=since(…)`
    # What is done to get to a version, after its tables were created. Never change a step that was
    # released: add one.
    steps: Mapping[int, Callable[[sa.Connection], None]] = field(default_factory=dict)
    # System views by name, for a database of the dialect "sqlite" or "postgresql". They may read
    # those that come before them.
    views: Callable[[str], Mapping[str, str]] = no_views

    @property
    def version(self) -> int:
        """The last version that changed anything here."""
        return max([*(_since(table) for table in self.tables.sorted_tables), *self.steps])

    def bring_to(self, version: int, connection: sa.Connection) -> None:
        """Do what a version has added to the one before."""
        added = [table for table in self.tables.sorted_tables if _since(table) == version]
        self.tables.create_all(connection, tables=added)
        step = self.steps.get(version)
        if step is not None:
            step(connection)


def _since(table: sa.Table) -> int:
    return int(table.info["since"])


VIEW_PREFIX = "tailrace_sys_"


def drop_views(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Drop the views that exist."""
    for name in reversed(_texts(connection, parts)):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {VIEW_PREFIX}{name}")


def create_views(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Create the views, replacing those of an older version."""
    parts = list(parts)
    drop_views(connection, parts)
    for name, text in _texts(connection, parts).items():
        connection.exec_driver_sql(f"CREATE VIEW {VIEW_PREFIX}{name} AS {text}")


def _texts(connection: sa.Connection, parts: Iterable[Part]) -> dict[str, str]:
    dialect = connection.dialect.name
    return {name: text for part in parts for name, text in part.views(dialect).items()}
