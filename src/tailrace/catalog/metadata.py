"""What Tailrace notes about a lake as a whole: its version, its identity, its configuration."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace.catalog.columns import Text, since
from tailrace.catalog.part import Part

tables = sa.MetaData()

own_metadata = sa.Table(
    "tailrace_metadata",
    tables,
    sa.Column("key", Text, primary_key=True),
    sa.Column("value", Text, nullable=False),
    info=since(1),
)

PART = Part(tables=tables)
