"""The limits and intervals of an open lake, with the reason for each default.

A setting changes how work is done, never what a result is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Passed to `tailrace.connect(settings=…)`; the defaults suit a laptop and a small cluster."""

    # Rows that the driver itself reads (a small table, a small change feed) before Spark is asked.
    local_rows: int = 200_000
    # The same limit by the compressed size of the Parquet objects involved.
    local_bytes: int = 256 * 1024 * 1024
    # Key values that the driver compares, one row group at a time, before a Spark join is cheaper.
    local_keys: int = 16_000_000
    # Rows under deletes that are masked by broadcast bitmaps (an eighth of a byte each);
    # a scan with more is an anti-join with the delete files.
    bitmap_rows: int = 400_000_000
    # Rows of a Parquet row group: small enough to skip by statistics, large enough to scan fast.
    row_group_rows: int = 131_072
    # Rows of a Parquet page: with the page index, the least that a filtered scan decodes.
    page_rows: int = 20_000
    # Bytes after which a writer begins the next file.
    file_bytes: int = 256 * 1024 * 1024
    # How long a commit waits for the catalog's lock.
    lock_timeout: timedelta = timedelta(seconds=30)
    # A transaction whose heartbeat is older than this is dead: it can no longer commit.
    transaction_timeout: timedelta = timedelta(minutes=15)
    # How long an object outlives its removal from the catalog, for readers that still run.
    object_grace: timedelta = timedelta(hours=1)
    # Attempts to prepare a commit outside the lock before it is prepared under the lock.
    commit_rounds: int = 3
