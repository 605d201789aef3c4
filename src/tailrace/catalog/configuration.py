"""What Tailrace notes about a lake as a whole: its version, its identity, its configuration."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import sqlalchemy as sa

from tailrace.catalog.part import Part, Text, since
from tailrace.configuration import Configuration

tables = sa.MetaData()

own_metadata = sa.Table(
    "tailrace_metadata",
    tables,
    sa.Column("key", Text, primary_key=True),
    sa.Column("value", Text, nullable=False),
    info=since(1),
)

PART = Part(tables=tables)


_PREFIX = "configuration."
_KEY, _VALUE = own_metadata.c.key, own_metadata.c.value
_ALL = sa.select(_KEY, _VALUE).where(_KEY.startswith(_PREFIX))


def read(connection: sa.Connection) -> Configuration:
    """The current configuration; what was never changed has its default."""
    names = {field.name for field in fields(Configuration)}
    stored = {key.removeprefix(_PREFIX): value for key, value in connection.execute(_ALL)}
    # A newer version may have written more.
    known = {name: value for name, value in stored.items() if name in names}
    return Configuration(**{name: timedelta(seconds=float(v)) for name, v in known.items()})


def write(connection: sa.Connection, configuration: Configuration) -> None:
    """Store what differs from the defaults."""
    connection.execute(sa.delete(own_metadata).where(_KEY.startswith(_PREFIX)))
    default = Configuration()
    rows = [
        {"key": f"{_PREFIX}{field.name}", "value": str(value.total_seconds())}
        for field in fields(configuration)
        if (value := getattr(configuration, field.name)) != getattr(default, field.name)
    ]
    if rows:
        connection.execute(sa.insert(own_metadata), rows)
