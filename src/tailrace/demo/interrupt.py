"""Ctrl-C: in the live part it ends that part, anywhere else it ends the demo at once.

At once means that nothing is waited for. That is safe at any moment: what has not been committed
was never there, and whoever opens the lake next goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """Something to close in the end."""

    def close(self) -> None:
        """Wait for what runs, and leave."""


C = TypeVar("C", bound=Closable)


@contextmanager
def closing(thing: C) -> Iterator[C]:
    """Close at the end or at an error, but not at Ctrl-C, which waits for nothing."""
    try:
        yield thing
    except Exception:
        thing.close()
        raise
    else:
        thing.close()


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(signal.SIGTERM, on_signal):
        yield


@contextmanager
def first_only_sets(event: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set an event; a second one interrupts as usual."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with _handling(signal.SIGINT, on_signal):
        yield


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    old: Any = None
    with suppress(ValueError):  # only the main thread may
        old = signal.signal(number, handler)
    try:
        yield
    finally:
        if old is not None:
            signal.signal(number, old)
