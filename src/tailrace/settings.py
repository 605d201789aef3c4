"""The limits and intervals of one process, with the reason for each default.

A setting changes how this process works, never what a result is. What other processes depend on,
such as how long history is kept, belongs to the lake: see `configuration`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from tailrace.arguments import show
from tailrace.errors import InvalidError

# The least values, where they are not 1 or a millisecond.
_LEAST: dict[str, int | timedelta] = {
    # Below 0, not even an empty table counts as small.
    **dict.fromkeys(("local_rows", "local_keys", "bitmap_rows"), -1),
    **dict.fromkeys(("local_bytes", "memory_rows", "tail_rows", "exact_rows"), 0),
    **dict.fromkeys(("cache_bytes", "kept_bytes", "commit_rounds", "rewrite_rows"), 0),
    "maintenance_workers": 0,
    **dict.fromkeys(("merge_segments", "compact_files"), 2),
    "drop_timeout": timedelta(0),
}
_MOST = {int: 2**63 - 1, timedelta: timedelta(days=36_500)}
# More threads never help.
MOST_WORKERS = 1_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Passed to `tailrace.connect(settings=…)`; the defaults suit a laptop and a small cluster."""

    # Rows that the driver itself reads (a small table, a small change feed) before Spark is asked.
    local_rows: int = 500_000
    # The same limit by the compressed size of the Parquet objects involved.
    local_bytes: int = 256 * 1024 * 1024
    # Rows of a change, or that a change leads to, which a view's refresh works on in memory before
    # Spark is asked: some hundred megabytes, as only the columns that the view uses are held.
    # Also the rows of a table that a condition is asked of here, a row group at a time. With 0,
    # Spark does all of it.
    memory_rows: int = 4_000_000
    # Key values that the driver compares, one row group at a time, before a Spark join is cheaper;
    # of keys that are whole numbers four times as many.
    local_keys: int = 32_000_000
    # Rows under deletes that are masked by broadcast bitmaps (an eighth of a byte each);
    # a scan with more is an anti-join with the delete files.
    bitmap_rows: int = 400_000_000
    # Rows of a Parquet row group: small enough to skip by statistics, large enough to scan fast.
    row_group_rows: int = 131_072
    # The same for tables with a primary key, and for what views store. They are sorted by their
    # keys, and few rows are looked for by key, of which a row group is the least that this process
    # decodes.
    keyed_group_rows: int = 16_384
    # Rows of a Parquet page: with the page index, the least that a filtered scan decodes.
    page_rows: int = 20_000
    # Bytes after which a writer begins the next file.
    file_bytes: int = 256 * 1024 * 1024
    # Files with about as many rows that are merged into one. With more, a row is rewritten less
    # often in its life, and a read opens more files.
    compact_files: int = 8
    # Rows of files that this process rewrites itself: half a minute or less, while it holds about
    # `local_rows` of them. For fewer rows it takes less time than Spark; for more, a cluster has
    # more processors.
    rewrite_rows: int = 20_000_000
    # Changed rows that a search with freshness="latest" looks at beside the index.
    tail_rows: int = 100_000
    # Up to so many vectors an index compares all of them; above, they are divided into lists.
    exact_rows: int = 50_000
    # Segments of about one size that are merged into one.
    merge_segments: int = 8
    # Bytes of segments that a machine keeps in its cache, where searches find them.
    cache_bytes: int = 10 * 1024**3
    # Bytes of decoded columns that a process keeps in memory of small reads: what is looked up by
    # key for one change is often looked up for the next. With 0, nothing is kept.
    kept_bytes: int = 128 * 1024 * 1024
    # How long a commit waits for the catalog's lock.
    lock_timeout: timedelta = timedelta(seconds=30)
    # Files that a purge takes out of the catalog, and objects that it deletes, in a second at
    # most: readers and writers want the catalog and the storage too.
    purge_rate: int = 500
    # Attempts to prepare a commit outside the lock before it is prepared under the lock.
    commit_rounds: int = 3

    # Tasks of maintenance that a node runs at once, beside its iterations. One leaves a machine of
    # few cores to what people wait for; large ones spread over Spark's by themselves. With 0, a
    # process leaves them to others.
    maintenance_workers: int = 1
    # Iterations that a node runs at once. Spark itself spreads each over its cores.
    workers: int = 4
    # Of those, how many of one tenant. Whatever the limit, tenants take turns.
    tenant_workers: int = 4
    # Jobs of one iteration that run at once, when its changes are too large for the driver.
    sibling_workers: int = 4
    # How long an iteration may take, unless its jobs say otherwise.
    iteration_timeout: timedelta = timedelta(hours=1)
    # Changed rows after which an iteration ends early, at a snapshot: each part commits.
    iteration_rows: int = 20_000_000
    # The same by the number of snapshots that changed a source.
    iteration_snapshots: int = 1000
    # The pause after a first failure; it doubles up to the longest, and varies by a fifth.
    retry_first: timedelta = timedelta(seconds=5)
    retry_longest: timedelta = timedelta(minutes=5)
    # Failures in a row, of a kind that is not known to pass, after which a job waits for a person.
    retry_limit: int = 20
    # How often a node compares all it knows with the job log, whatever it has been told.
    reconcile_interval: timedelta = timedelta(seconds=30)
    # How often a node looks whether another process has written to a SQLite catalog, which takes
    # some microseconds.
    watch_interval: timedelta = timedelta(milliseconds=50)
    # How often the watermarks of jobs that had nothing to do are stored, old rows deleted, and a
    # purge and a sweep entered.
    upkeep_interval: timedelta = timedelta(hours=1)
    # How long dropping a job waits for its running iteration. It can't commit any more anyway.
    drop_timeout: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            least, most = limits(field.name)
            if type(value) is not kind or not least <= value <= most:
                what = "a whole number" if kind is int else "a timedelta"
                raise InvalidError(
                    f"Settings.{field.name} is {what} from {least} to {most}, not {show(value)}"
                )


def group_rows(settings: Settings, *, looked_up: bool) -> int:
    """Rows of a Parquet row group of a table: one whose rows are looked up by key, or not."""
    most = settings.row_group_rows
    return min(most, settings.keyed_group_rows) if looked_up else most


def limits(name: str) -> tuple[Any, Any]:
    """The least and the greatest value of a setting."""
    kind = type(getattr(Settings, name))
    least = _LEAST.get(name, 1 if kind is int else timedelta(milliseconds=1))
    return least, MOST_WORKERS if name.endswith("workers") else _MOST[kind]
