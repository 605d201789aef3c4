"""Spark behind a command: started quietly, and what runs on it can be cancelled."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.cli.printing import console

if TYPE_CHECKING:
    from tailrace.lake import Lake

T = TypeVar("T")


class CancelledError(Exception):
    """The user pressed Ctrl-C, and what was running has been stopped."""


@contextmanager
def _quietly(doing: Callable[[str], None]) -> Iterator[None]:
    """Send what the JVM prints, now and later, to a file that nobody reads."""
    doing("starting Spark")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
    # What Spark would log of a wrong query is in the error that we show.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    doing("working")


@contextmanager
def working(lake: Lake) -> Iterator[Callable[[str], None]]:
    """Show progress on a terminal; the function given says what is going on."""
    with console(error=True).status("working") as status:
        lake.runtime.spark.starting = lambda: _quietly(status.update)
        yield status.update


def cancellable(lake: Lake, work: Callable[[], T]) -> T:
    """Work in a thread, so that Ctrl-C reaches us and cancels Spark's jobs.

    The session stays; CancelledError is raised once the work has ended.
    """
    box: dict[str, Any] = {}
    ended = threading.Event()  # not `join`: interrupted by Ctrl-C, it takes the thread for dead

    def run() -> None:
        try:
            box["value"] = work()
        except BaseException as error:  # noqa: BLE001  (raised again where it is waited for)
            box["error"] = error
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    cancelled = False
    while not ended.is_set():
        try:
            ended.wait(0.1)
        except KeyboardInterrupt:
            if cancelled:
                raise
            cancelled = True
        if cancelled:  # again and again: Spark may be starting, or between two jobs
            _cancel(lake)
    if "error" in box:
        raise CancelledError if cancelled else box["error"]
    value: T = box["value"]  # even after Ctrl-C: what was done is done, and has to be said
    return value


def _cancel(lake: Lake) -> None:
    """Cancel what Spark runs at the moment."""
    from tailrace.store.spark_life import is_classic

    session = lake.runtime.spark.session
    if session is None:
        return
    with suppress(Exception):  # it may have ended just now
        if is_classic(session):
            session.sparkContext.cancelAllJobs()
        else:
            session.interruptAll()
