"""What people ask a lake about itself, as views in its database.

They are read by `SELECT … FROM tailrace.jobs`, and by every other program that can read the
catalog's database; so they are in the database, and not in a program. Each layer has the texts of
its own (`Part.views`).
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tailrace.catalog.part import Part

PREFIX = "tailrace_sys_"


def drop_all(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Drop the views, as many of them as there are."""
    for name in reversed(_texts(connection, parts)):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {PREFIX}{name}")


def create_all(connection: sa.Connection, parts: Iterable[Part]) -> None:
    """Create the views, in place of those that an older version made."""
    parts = list(parts)
    drop_all(connection, parts)
    for name, text in _texts(connection, parts).items():
        connection.exec_driver_sql(f"CREATE VIEW {PREFIX}{name} AS {text}")


def _texts(connection: sa.Connection, parts: Iterable[Part]) -> dict[str, str]:
    dialect = connection.dialect.name
    return {name: text for part in parts for name, text in part.views(dialect).items()}
