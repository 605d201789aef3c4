"""Whether a thread is running a consumer: some calls would then wait for themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import InvalidError

_thread = threading.local()


@contextmanager
def consuming(label: str) -> Iterator[None]:
    """Around the call of a job's consumer."""
    _thread.job = label
    try:
        yield
    finally:
        _thread.job = None


def check_outside(call: str) -> None:
    """Refuse a call that would wait for the very iteration that makes it."""
    job = getattr(_thread, "job", None)
    if job is not None:
        raise InvalidError(f"{call} inside of the consumer of {job} would wait for itself")
