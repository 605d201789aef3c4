"""Tailrace: derived data that stays fresh, on Apache Spark.

Begin with `tailrace.connect`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidError,
    JobFailedError,
    NotFoundError,
    TailraceError,
    UnavailableError,
)
from tailrace.version import __version__

if TYPE_CHECKING:
    from tailrace.configuration import Configuration
    from tailrace.datasource import register
    from tailrace.indexes.index import Index
    from tailrace.indexes.results import as_of, is_stale
    from tailrace.indexes.status import IndexStatus
    from tailrace.lake import Lake, connect
    from tailrace.propagation.changes import Changes
    from tailrace.propagation.compacting import Compaction
    from tailrace.propagation.consumer import JobContext, consumer
    from tailrace.propagation.history import Iteration, Usage
    from tailrace.propagation.job import State
    from tailrace.propagation.jobs import Jobs
    from tailrace.propagation.serving import Serving
    from tailrace.propagation.status import JobStatus
    from tailrace.propagation.task_status import TaskStatus
    from tailrace.propagation.trigger import Trigger, trigger
    from tailrace.settings import Settings
    from tailrace.sql.result import Result
    from tailrace.store.compaction import TableHealth
    from tailrace.store.purge import Purge
    from tailrace.store.snapshots import Snapshot
    from tailrace.store.sweep import Sweep
    from tailrace.store.table import Table
    from tailrace.store.transaction import Transaction
    from tailrace.views.refresh.planner import Explanation
    from tailrace.views.refresh.verify import Report as VerifyReport
    from tailrace.views.view import View

# Where each name is defined. Imported on first use: `tailrace --help` needs none of them.
_PLACES = {
    "Changes": "propagation.changes",
    "Compaction": "propagation.compacting",
    "Configuration": "configuration",
    "Explanation": "views.refresh.planner",
    "Index": "indexes.index",
    "IndexStatus": "indexes.status",
    "Iteration": "propagation.history",
    "JobContext": "propagation.consumer",
    "JobStatus": "propagation.status",
    "Jobs": "propagation.jobs",
    "Lake": "lake",
    "Purge": "store.purge",
    "Result": "sql.result",
    "Serving": "propagation.serving",
    "Settings": "settings",
    "Snapshot": "store.snapshots",
    "State": "propagation.job",
    "Sweep": "store.sweep",
    "Table": "store.table",
    "TableHealth": "store.compaction",
    "TaskStatus": "propagation.task_status",
    "Transaction": "store.transaction",
    "Trigger": "propagation.trigger",
    "Usage": "propagation.history",
    "VerifyReport": "views.refresh.verify:Report",
    "View": "views.view",
    "as_of": "indexes.results",
    "connect": "lake",
    "consumer": "propagation.consumer",
    "is_stale": "indexes.results",
    "register": "datasource",
    "trigger": "propagation.trigger",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    module, _, other = _PLACES[name].partition(":")
    found = getattr(import_module(f"tailrace.{module}"), other or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


__all__ = [
    "Changes",
    "CommitUnknownError",
    "Compaction",
    "Configuration",
    "ConflictError",
    "CorruptError",
    "Explanation",
    "Index",
    "IndexStatus",
    "InvalidError",
    "Iteration",
    "JobContext",
    "JobFailedError",
    "JobStatus",
    "Jobs",
    "Lake",
    "NotFoundError",
    "Purge",
    "Result",
    "Serving",
    "Settings",
    "Snapshot",
    "State",
    "Sweep",
    "Table",
    "TableHealth",
    "TailraceError",
    "TaskStatus",
    "Transaction",
    "Trigger",
    "UnavailableError",
    "Usage",
    "VerifyReport",
    "View",
    "__version__",
    "as_of",
    "connect",
    "consumer",
    "is_stale",
    "register",
    "trigger",
]
