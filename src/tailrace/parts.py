"""What the layers keep in a lake's catalog, and the catalog opened alone.

That is all that a list of what there is needs. It starts in half the time of a `Lake`, since
neither Arrow nor what reads and writes rows is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.arguments import Name, checked
from tailrace.catalog.opening import open_database
from tailrace.indexes import tables as index_tables
from tailrace.propagation import tables as propagation_tables
from tailrace.settings import Settings
from tailrace.store import tables as store_tables
from tailrace.store.lookup import DEFAULT_TENANT
from tailrace.store.runtime import TenantCatalog

# From low to high.
CATALOG_PARTS = (store_tables.PART, propagation_tables.PART, index_tables.PART)


@checked
@contextmanager
def catalog_of(lake: str | Path, tenant: Name = DEFAULT_TENANT) -> Iterator[TenantCatalog]:
    """The catalog of a lake, open within the block."""
    database, clock, _ = open_database(
        lake, None, parts=CATALOG_PARTS, settings=Settings(), clock=None
    )
    try:
        yield TenantCatalog(database=database, clock=clock, tenant=tenant)
    finally:
        database.close()
