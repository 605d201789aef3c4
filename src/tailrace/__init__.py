"""Tailrace: derived data that stays fresh, on Apache Spark.

Begin with `tailrace.connect`.
"""

from tailrace.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    JobFailedError,
    NotFoundError,
    TailraceError,
    UnavailableError,
)
from tailrace.lake import Lake, Snapshot, connect
from tailrace.settings import Settings
from tailrace.store.sweep import Sweep
from tailrace.store.table import Table
from tailrace.store.transaction import Transaction
from tailrace.version import __version__

__all__ = [
    "ConflictError",
    "CorruptError",
    "InvalidError",
    "JobFailedError",
    "Lake",
    "NotFoundError",
    "Settings",
    "Snapshot",
    "Sweep",
    "Table",
    "TailraceError",
    "Transaction",
    "UnavailableError",
    "__version__",
    "connect",
]
