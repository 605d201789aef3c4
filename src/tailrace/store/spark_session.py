"""The Spark session: where it comes from, whether it lives, and how another is made.

It is given by the user, or started at the first call. One that was started here and has ended is
started anew, with what it was started with; another's is left alone, for nobody here knows its
settings. Also the sessions beside it, on the same Spark, which differ from it in settings only.

PySpark has no call that says whether a session lives, nor one that makes it forget a session that
does not, so this is the one module that looks at its inner parts.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from tailrace.errors import UnavailableError
from tailrace.log import get_logger

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


log = get_logger("tailrace.spark")

# Texts of users are checked before Spark gets them (`spark_text`). Beside that, in sessions of our
# own, Spark neither takes a path for a table, nor puts its settings and environment into a text.
_CLOSED = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}

_lock = Lock()
_beside: WeakKeyDictionary[SparkSession, dict[str, SparkSession]] = WeakKeyDictionary()
_made: WeakSet[SparkSession] = WeakSet()  # all of those that are beside, or were
_ours: WeakSet[Any] = WeakSet()  # the roots of sessions that were started here


_NOT_OURS = (
    "the Spark session was made by the program that opened the lake, and has ended: "
    "restart the program, or connect again with a session that works"
)


class SparkGoneError(UnavailableError):
    """Spark does not work in this process."""


class SparkProvider:
    """Starts a local Spark at the first call, unless there is a session already."""

    def __init__(self, session: SparkSession | None = None) -> None:
        self._session = session  # None: not started yet
        # What is entered while it starts: a program may have to say, or to hide, something.
        self.starting: Callable[[], AbstractContextManager[None]] = nullcontext
        self._lock = Lock()
        self._asking: Thread | None = None
        self.fault: str | None = None  # what `examine` said last

    @property
    def session(self) -> SparkSession | None:
        """The session, if it is there: not before the first call, nor when ours has ended."""
        session = self._session
        if session is not None and _is_ours(session) and has_ended(session):
            return None
        return session

    @property
    def is_lost(self) -> bool:
        """Whether there was a session, or should be, and there is none; nobody is asked for it."""
        if self._session is None:
            return self.fault is not None  # it did not start
        return has_ended(self._session)

    def if_there(self) -> SparkSession | None:
        """A session that need not be started: the given one, or the process's own."""
        session = self.session
        if session is not None or "pyspark" not in sys.modules:
            return None if self.is_lost else session
        from pyspark.sql import SparkSession

        try:
            return SparkSession.getActiveSession()
        except Exception:  # noqa: BLE001  (the process's own has ended)
            return None

    def __call__(self) -> SparkSession:
        with self._lock:
            session = self._session
            if session is not None and has_ended(session):
                if not _is_ours(session):
                    raise SparkGoneError(_NOT_OURS)
                with _lock:
                    discard(session)
                log.warning("Spark has ended: starting it anew")
                session = None
            if session is None:
                with self.starting():
                    session = self._start()
            return session

    def _start(self) -> SparkSession:
        try:
            was_there = _is_there()
            self._session = session = _start_spark()
        except Exception as error:
            first = str(error).strip().partition("\n")[0] or type(error).__name__
            self.fault = f"Spark does not start: {first}"
            raise SparkGoneError(self.fault) from error
        self.fault = None
        if not was_there:  # a program's own may have settings that nobody here knows
            _ours.add(root(session))
        return session

    def glance(self) -> str | None:
        """As `examine`, but where there is a JVM of this process that is all that is looked at."""
        session = self._session
        if session is None or (is_classic(session) and not has_ended(session)):
            return None
        return self.examine()

    def examine(self) -> str | None:
        """What is wrong with the session, if something is. It is asked how it is."""
        session = self._session
        if session is None:
            return self.fault
        reason = ENDED if has_ended(session) else self._ask(session)
        if reason == ENDED and not _is_ours(session):
            reason = _NOT_OURS
        self.fault = reason
        return reason

    def _ask(self, session: SparkSession) -> str | None:
        if is_classic(session):
            return state_of(session)
        nobody = f"nobody answers at {session.client.host}, where the Spark Connect server was"
        if self.fault == nobody:
            if not listens(session):
                return nobody
        elif self._asking is not None and self._asking.is_alive():
            return SILENT  # since the last time
        # On a thread: a call tries for ten minutes.
        answers: list[str | None] = []
        self._asking = Thread(
            target=lambda: answers.append(state_of(session)), name="tailrace-ask", daemon=True
        )
        self._asking.start()
        self._asking.join(PATIENCE)
        if answers:
            return answers[0]
        return SILENT if listens(session) else nobody


def _is_ours(session: SparkSession) -> bool:
    """Whether it was started here, for whatever lake, so that it can be started again."""
    return root(session) in _ours


def _is_there() -> bool:
    """Whether this process has a session already, which `_start_spark` then takes."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if "pyspark.sql.connect.session" in sys.modules:
        from pyspark.sql.connect.session import SparkSession as Remote

        if Remote._get_default_session() is not None:
            return True
    return (
        SparkSession.getActiveSession() is not None
        or SparkContext._active_spark_context is not None
    )


def _start_spark() -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Workers must run the Python that has Tailrace and its libraries.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_configured() or SparkConf().contains("spark.master"):
        return SparkSession.builder.getOrCreate()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.appName("tailrace")
        .master("local[*]")
        .config(map={**_CLOSED})
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        # Files are named, not listed: looking at a few hundred is faster than a job for it.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "2000")
        .getOrCreate()
    )


def is_configured() -> bool:
    """Whether it has been said where Spark runs: for Connect, by spark-submit, or in its files."""
    if os.environ.keys() & {"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"}:
        return True
    if re.search(
        r"--(master|remote)\b|\bspark\.(master|remote)=", _variable("PYSPARK_SUBMIT_ARGS")
    ):
        return True
    directory = _variable("SPARK_CONF_DIR") or f"{_variable('SPARK_HOME')}/conf"
    file = Path(directory) / "spark-defaults.conf"
    said = file.read_text(encoding="utf-8") if file.is_file() else ""
    return re.search(r"^\s*spark\.(master|remote)\b", said, re.MULTILINE) is not None


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def session_beside(
    session: SparkSession, name: str, settings: Mapping[str, str], *, anew: bool = False
) -> SparkSession:
    """The session of a name beside a user's own: made once, or anew if it was lost.

    It is the user's own where PySpark cannot make another: with Connect, before 4.3.
    """
    with _lock:
        made = _beside.setdefault(session, {})
        found = None if anew else made.get(name)
        if found is None:
            make = getattr(session, "newSession", None)
            if make is None:
                return session
            found = made[name] = make()
            _made.add(found)
            for key, value in {**_CLOSED, **settings}.items():
                found.conf.set(key, value)
    if not is_classic(session):
        # Each client of Connect has tags of its own; a classic session's are the context's.
        found.clearTags()
        for tag in session.getTags():
            found.addTag(tag)
    return found


@atexit.register
def _close_all() -> None:
    """Close clients of Connect: to do so while the interpreter is torn down would never end."""
    for session in list(_made):
        if not is_classic(session):
            with suppress(Exception):
                session.client.close()


def with_those_beside(session: SparkSession) -> list[SparkSession]:
    """A user's session, and those that were made beside it."""
    with _lock:
        return [session, *_beside.get(session, {}).values()]
