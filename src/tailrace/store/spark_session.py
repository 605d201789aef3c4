"""Where the Spark session comes from: given by the user, or started at the first call.

Also the sessions beside it, on the same Spark, which differ from it in settings only.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Texts of users are checked before Spark gets them (`spark_text`). Beside that, in sessions of our
# own, Spark neither takes a path for a table, nor puts its settings and environment into a text.
_CLOSED = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}

_lock = Lock()
_beside: WeakKeyDictionary[SparkSession, dict[str, SparkSession]] = WeakKeyDictionary()
_made: WeakSet[SparkSession] = WeakSet()  # all of those that are beside, or were


class SparkProvider:
    """Starts a local Spark at the first call, unless there is a session already."""

    def __init__(self, session: SparkSession | None = None) -> None:
        self.session = session  # None: not started yet
        # What is entered while it starts: a program may have to say, or to hide, something.
        self.starting: Callable[[], AbstractContextManager[None]] = nullcontext
        self._lock = Lock()

    def if_there(self) -> SparkSession | None:
        """A session that need not be started: the given one, or the process's own."""
        if self.session is not None or "pyspark" not in sys.modules:
            return self.session
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession()

    def __call__(self) -> SparkSession:
        with self._lock:
            if self.session is None:
                with self.starting():
                    self.session = _start_spark()
            return self.session


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


def is_classic(session: SparkSession) -> bool:
    """Whether this process is the driver; else the session is a client of Spark Connect."""
    return not type(session).__module__.startswith("pyspark.sql.connect")


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
