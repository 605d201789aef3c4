"""Whether a Spark session lives, and how PySpark is made to forget one that does not.

PySpark has no call for either, so this is the one module that looks at its inner parts.
"""

from __future__ import annotations

import socket
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDED = "the Spark session has ended: its JVM is gone, or it was stopped"
SILENT = "Spark does not answer"
# The roots of sessions that said that they have ended.
_ended: WeakSet[Any] = WeakSet()
# Seconds that a session has to answer; one that does not is not taken for dead.
PATIENCE = 10.0


def has_ended(session: SparkSession) -> bool:
    """Whether a session is known here to have ended, without asking it: costs nothing."""
    if root(session) in _ended:
        return True
    if not is_classic(session):
        return bool(_remote(session).is_stopped)
    context = session.sparkContext
    if context._jsc is None:  # stopped
        return True
    # Not by getattr, which would ask the JVM. None under spark-submit, which is the JVM's child.
    process = vars(context._gateway).get("proc")
    return process is not None and process.poll() is not None


def state_of(session: SparkSession) -> str | None:
    """What is wrong with a session that is asked, if something is."""
    reason = None
    try:
        if is_classic(session):
            if session.sparkContext._jsc.sc().isStopped():
                _ended.add(root(session))
        else:
            _ = session.version
    except Exception as error:  # noqa: BLE001  (whatever it says: it does not work)
        reason = f"{SILENT}: {str(error).strip().partition(chr(10))[0]}"
        if not is_classic(session) and "INVALID_HANDLE" in str(error):
            _ended.add(root(session))  # the server has forgotten it
    return ENDED if has_ended(session) else reason


def listens(session: SparkSession) -> bool:
    """Whether somebody listens where the server should be: a call would try for ten minutes."""
    endpoint = getattr(_remote(session).client._builder, "endpoint", None)
    if endpoint is None:  # a way to connect of the program's own
        return True
    host, _, port = str(endpoint).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def discard(session: SparkSession) -> None:
    """Make PySpark forget a session that has ended, so that it starts another."""
    if not is_classic(session):
        _remote(session).release_session_on_close = False  # there is nobody to tell
        with suppress(Exception):
            session.stop()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process = None if gateway is None else vars(gateway).get("proc")
    if is_classic(session) and SparkContext._active_spark_context is session.sparkContext:
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the JVM has not been stopped properly
            session.sparkContext.stop()
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is not None and process is not None and process.poll() is not None:
        with suppress(Exception):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None


def is_classic(session: SparkSession) -> bool:
    """Whether this process is the driver; else the session is a client of Spark Connect."""
    return not type(session).__module__.startswith("pyspark.sql.connect")


def root(session: SparkSession) -> Any:
    """What sessions that live and end together have in common; PySpark makes several of one."""
    return session.sparkContext if is_classic(session) else session


def _remote(session: SparkSession) -> Any:
    """A client of Connect, which has more than PySpark's types say."""
    return session
