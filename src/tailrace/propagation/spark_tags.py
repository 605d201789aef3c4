"""Tags on the Spark jobs that a thread starts, so that another thread can cancel them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaggingSpark:
    """Gives the Spark session, and tags what a thread starts with it."""

    def __init__(self, provider: Callable[[], SparkSession]) -> None:
        self._provider = provider
        self._thread = threading.local()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        self._session = session = self._provider()
        tag = getattr(self._thread, "tag", None)
        if tag is not None:
            _add(session, tag)
        return session

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tag the jobs that this thread starts inside; Spark may start only then."""
        self._thread.tag = tag
        if self._session is not None:
            _add(self._session, tag)
        try:
            yield
        finally:
            self._thread.tag = None
            if self._session is not None:
                with suppress(Exception):  # Spark may have been stopped by its owner
                    _remove(self._session, tag)

    def interrupt(self, tag: str) -> None:
        """Cancel the jobs with a tag."""
        if self._session is not None and tag:
            with suppress(Exception):  # they may have ended just now, and Spark with them
                _cancel(self._session, tag)


# A classic session keeps its tags apart by thread, so that no other thread can interrupt by them:
# there, the context's own tags are used.


def _is_classic(session: SparkSession) -> bool:
    return not type(session).__module__.startswith("pyspark.sql.connect")


def _add(session: SparkSession, tag: str) -> None:
    session.sparkContext.addJobTag(tag) if _is_classic(session) else session.addTag(tag)


def _remove(session: SparkSession, tag: str) -> None:
    session.sparkContext.removeJobTag(tag) if _is_classic(session) else session.removeTag(tag)


def _cancel(session: SparkSession, tag: str) -> None:
    if _is_classic(session):
        session.sparkContext.cancelJobsWithTag(tag)
    else:
        session.interruptTag(tag)
