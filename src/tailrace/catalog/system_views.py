"""The system views: what a lake knows about itself, as views in its database.

`SELECT … FROM tailrace.jobs` reads them, and so can any program that can read the catalog's
database. Each layer writes the queries of its own (`Part.views`).
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.catalog.part import Part

PREFIX = "tailrace_sys_"


def drop_all(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Drop the views that exist."""
    for name in reversed(_texts(connection, parts)):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {PREFIX}{name}")


def create_all(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Create the views, replacing those of an older version."""
    parts = list(parts)
    drop_all(connection, parts)
    for name, text in _texts(connection, parts).items():
        connection.exec_driver_sql(f"CREATE VIEW {PREFIX}{name} AS {text}")


def _texts(connection: sa.Connection, parts: Iterable[Part]) -> dict[str, str]:
    dialect = connection.dialect.name
    return {name: text for part in parts for name, text in part.views(dialect).items()}
