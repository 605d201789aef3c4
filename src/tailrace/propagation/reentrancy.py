"""Calls that a consumer must not make, because they would wait for its own iteration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import InvalidError

_thread = threading.local()


@contextmanager
def consuming(job: str) -> Iterator[None]:
    """Mark this thread as running a job's consumer."""
    _thread.job = job
    try:
        yield
    finally:
        _thread.job = None


def check_outside(call: str) -> None:
    """Refuse a call from inside of a consumer: it would wait for its own iteration."""
    job = getattr(_thread, "job", None)
    if job is not None:
        raise InvalidError(f"{call} inside of the consumer of {job} would wait for itself")
