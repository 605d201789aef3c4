"""Ctrl-C: during the live part it ends that part, anywhere else the demo, and then at once.

At once means that nothing is waited for. That is safe at any moment: what has not been committed
was never there, and whoever opens the lake next goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """What has to be closed in the end."""

    def close(self) -> None:
        """Wait for what runs, and leave."""


C = TypeVar("C", bound=Closable)
T = TypeVar("T")


def in_background(work: Callable[[], T]) -> Future[T]:
    """Do something on a thread that nobody has to wait for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  (it is raised to whoever asks)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def closing(thing: C) -> Iterator[C]:
    """Close at the end or at an error, but not when the user has lost patience."""
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
    """Let the first Ctrl-C set an event; the second is as everywhere else."""

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
