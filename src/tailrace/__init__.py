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
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import JobContext, consumer
from tailrace.propagation.history import Iteration, Usage
from tailrace.propagation.job import State
from tailrace.propagation.jobs import Jobs
from tailrace.propagation.serving import Serving
from tailrace.propagation.status import JobStatus
from tailrace.propagation.trigger import Trigger, trigger
from tailrace.settings import Settings
from tailrace.store.purge import Purge
from tailrace.store.sweep import Sweep
from tailrace.store.table import Table
from tailrace.store.transaction import Transaction
from tailrace.version import __version__
from tailrace.views.explain import Explanation
from tailrace.views.verify import Report as VerifyReport
from tailrace.views.views import View

__all__ = [
    "Changes",
    "ConflictError",
    "CorruptError",
    "Explanation",
    "InvalidError",
    "Iteration",
    "JobContext",
    "JobFailedError",
    "JobStatus",
    "Jobs",
    "Lake",
    "NotFoundError",
    "Purge",
    "Serving",
    "Settings",
    "Snapshot",
    "State",
    "Sweep",
    "Table",
    "TailraceError",
    "Transaction",
    "Trigger",
    "UnavailableError",
    "Usage",
    "VerifyReport",
    "View",
    "__version__",
    "connect",
    "consumer",
    "trigger",
]
