"""Processes that a test starts, for work that must happen at once or must be cut off.

They are forked from a server that has imported what they need and has done nothing else, so that
one starts in milliseconds and shares no connection, thread or lock with the test.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkServerContext, ForkServerProcess

# Most of what a child does, imports included, would else be done by each anew: names of `tailrace`
# are imported when they are first used, and Arrow imports pandas at the first conversion.
_PRELOAD = [
    *("__main__", "pandas", "psycopg", "pyarrow.parquet", "structlog"),
    *("tailrace.lake", "tailrace.replicas.replica", "tests.support.servers"),
]


def context() -> ForkServerContext:
    """Where processes, queues and events for them come from."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_PRELOAD)
    return made


def start(work: Callable[..., object], *arguments: Any) -> ForkServerProcess:
    """Start a process that calls a function of a module."""
    # A daemon ends with the test run, however that ends.
    child = context().Process(target=work, args=arguments, daemon=True)
    child.start()
    return child


def join(child: ForkServerProcess, timeout: float = 60.0) -> int:
    """Wait for a process; returns its exit status, below 0 for the signal that ended it."""
    child.join(timeout)
    if child.exitcode is None:
        child.kill()
        raise TimeoutError(f"{child.name} did not end within {timeout:g} seconds")
    return child.exitcode


def end_server() -> None:
    """End the server, when no process of it is needed any more."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
