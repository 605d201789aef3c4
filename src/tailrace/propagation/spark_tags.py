"""Tags on the Spark jobs that a thread starts, so that another thread can cancel them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailrace.store.spark_session import (
    ENDED,
    SparkGoneError,
    SparkProvider,
    is_classic,
    with_those_beside,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaggingSpark(SparkProvider):
    """Provides the Spark session, and tags the jobs that a thread starts with it."""

    def __init__(self, provider: SparkProvider) -> None:
        super().__init__()
        self._provider = provider
        self._thread = threading.local()
        # Don't restart a lost Spark: others do the work, and `health` restarts it.
        self.waits = False

    @property
    def session(self) -> SparkSession | None:
        return self._provider.session

    def __call__(self) -> SparkSession:
        if self.waits and self._provider.is_lost:
            raise SparkGoneError(self._provider.fault or ENDED)
        session = self._provider()
        tag = getattr(self._thread, "tag", None)
        if tag is not None:
            _add(session, tag)
        return session

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tag the jobs that this thread starts meanwhile; Spark itself may start meanwhile, too."""
        self._thread.tag = tag
        with suppress(Exception):  # the call for a session will say what is wrong with it
            if self._provider.session is not None:
                _add(self._provider.session, tag)
        try:
            yield
        finally:
            self._thread.tag = None
            with suppress(Exception):  # Spark may have been stopped by its owner
                if self._provider.session is not None:
                    _remove(self._provider.session, tag)

    def interrupt(self, tag: str) -> None:
        """Cancel the jobs with a tag."""
        # A Connect server that does not answer would be asked for minutes.
        is_well = self._provider.fault is None and not self._provider.is_lost
        if self._provider.session is not None and tag and is_well:
            with suppress(Exception):  # they may just have ended, and Spark with them
                _cancel(self._provider.session, tag)


# A classic session keeps tags per thread, so that no other thread can interrupt by them. There, the
# context's own tags are used.


def _add(session: SparkSession, tag: str) -> None:
    session.sparkContext.addJobTag(tag) if is_classic(session) else session.addTag(tag)


def _remove(session: SparkSession, tag: str) -> None:
    session.sparkContext.removeJobTag(tag) if is_classic(session) else session.removeTag(tag)


def _cancel(session: SparkSession, tag: str) -> None:
    if is_classic(session):
        session.sparkContext.cancelJobsWithTag(tag)
        return
    for one in with_those_beside(session):
        with suppress(Exception):  # the server may have forgotten one of them
            one.interruptTag(tag)
