"""Spark behind a command: started quietly, and what runs on it can be cancelled."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, TypeVar

from tailrace.cli.printing import console
from tailrace.errors import UnavailableError

if TYPE_CHECKING:
    from tailrace.lake import Lake

T = TypeVar("T")


class CancelledError(UnavailableError):
    """The user pressed Ctrl-C, and what was running has been stopped."""


@contextmanager
def stderr_aside() -> Iterator[tuple[IO[bytes], IO[str]]]:
    """Redirect standard error, of child processes too: yields where it goes, and the real one."""
    sys.stderr.flush()
    with (
        tempfile.TemporaryFile() as aside,
        os.fdopen(os.dup(2), "w", encoding="utf-8") as real,
    ):
        os.dup2(aside.fileno(), 2)
        try:
            yield aside, real
        finally:
            sys.stderr.flush()
            os.dup2(real.fileno(), 2)


@contextmanager
def _quietly(doing: Callable[[str], None]) -> Iterator[None]:
    """Send what the JVM prints, now and later, to a file that nobody reads."""
    doing("starting Spark")
    with stderr_aside():
        yield
    # What Spark would log of a wrong query is in the error that we show.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    doing("working")


@contextmanager
def working(lake: Lake) -> Iterator[Callable[[str], None]]:
    """Show progress on a terminal; the function given says what is going on."""
    with console(error=True).status("working") as status:
        lake.runtime.spark.starting = lambda: _quietly(status.update)
        yield status.update


def in_background(work: Callable[[], T]) -> Future[T]:
    """Do something on a thread that ends with the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  (it is raised to whoever asks)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def cancellable(lake: Lake, work: Callable[[], T], *, message: str = "cancelled") -> T:
    """Work in a thread, so that Ctrl-C reaches us and cancels Spark's jobs.

    The session stays; CancelledError is raised with the message once the work has ended.
    """
    future = in_background(work)
    cancelled = False
    while not future.done():
        try:
            wait([future], 0.1)
        except KeyboardInterrupt:
            if cancelled:
                raise
            cancelled = True
        if cancelled:  # again and again: Spark may be starting, or between two jobs
            _cancel(lake)
    if cancelled and future.exception() is not None:
        raise CancelledError(message)
    return future.result()  # even after Ctrl-C: what was done is done, and has to be said


def _cancel(lake: Lake) -> None:
    """Cancel what Spark runs at the moment."""
    from tailrace.store.spark_session import is_classic

    session = lake.runtime.spark.session
    if session is None:
        return
    with suppress(Exception):  # it may have ended just now
        if is_classic(session):
            session.sparkContext.cancelAllJobs()
        else:
            session.interruptAll()
