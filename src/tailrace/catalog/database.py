"""The catalog's database: connections, transactions, and the commit lock.

Owned here: the engine, the commit lock, and the translation of database faults into our errors.
Always true: writes that create a snapshot or touch the job log happen under the commit lock, one
at a time; whoever listens is told of each, on PostgreSQL also in other processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc

from tailrace.catalog import postgres
from tailrace.catalog.postgres import OUTBOX, Outbox, Values
from tailrace.configuration import Configuration
from tailrace.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    TailraceError,
    UnavailableError,
)

# On top of those kept open: each worker that waits for the lock holds one.
_MOST_CONNECTIONS = 100
# PostgreSQL's codes for a schema, table or column that is not there.
_MISSING = ("3F000", "42P01", "42703")


T = TypeVar("T")
Query = sa.Select[Any] | sa.CompoundSelect[Any]


class CommitLostError(UnavailableError):
    """COMMIT was sent and no answer came: it may have happened. See `store.commit`."""


def in_batches(items: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    """Split items into lists that are short enough for the parameters of a statement."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


# Asked in every transaction under the lock: the version of the catalog, as `opening` writes it.
VERSION = "SELECT value FROM tailrace_metadata WHERE key = 'version'"
# Seconds for which work in the background lets commits go first, each time that it begins to write.
_LONGEST_WAY = 1.0
# The most rows of a statement that are sent together with others: for more it is quicker to prepare
# the statement.
_FEW_ROWS = 50


class Together:
    """Statements under the lock that are executed together, once an answer is needed.

    On PostgreSQL that is one round trip, if they are not very many.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._later: list[tuple[sa.Executable, Values, Exception | None]] = []

    @property
    def connection(self) -> sa.Connection:
        """For statements with an answer; everything before them has been executed."""
        self.flush()
        return self._connection

    def later(
        self, statement: sa.Executable, values: Values, refusal: Exception | None = None
    ) -> None:
        """Execute a statement, if it has values; `refusal` is raised unless it changes one row."""
        if values:
            self._later.append((statement, values, refusal))

    def execute(self, statement: sa.Executable, values: Values) -> sa.CursorResult[Any]:
        """Execute a statement with those that were left for later; its result."""
        outbox = _outbox_of(self._connection)
        if outbox is None or any(refusal is not None for _, _, refusal in self._later):
            self.flush()
        else:
            later, self._later = self._later, []
            outbox.put_ahead(self._connection, [(one, given) for one, given, _ in later])
        return self._connection.execute(statement, values)

    def flush(self) -> None:
        """Execute what was left for later."""
        later, self._later = self._later, []
        if not later:
            return
        counts = _execute_all(self._connection, [(one, values) for one, values, _ in later])
        for (_, _, refusal), count in zip(later, counts, strict=True):
            if refusal is not None and count != 1:
                raise refusal


def _execute_all(
    connection: sa.Connection, statements: Iterable[tuple[sa.Executable, Values]]
) -> list[int]:
    """Execute statements; how many rows each of them has changed."""
    outbox = _outbox_of(connection)
    if outbox is None:
        return [connection.execute(statement, values).rowcount for statement, values in statements]
    counts: list[int] = []
    few: list[tuple[sa.Executable, Values]] = []
    for statement, values in statements:
        if isinstance(values, Mapping) or len(values) <= _FEW_ROWS:
            few.append((statement, values))
        else:
            counts += outbox.send(connection, few)
            counts.append(connection.execute(statement, values).rowcount)
            few = []
    return counts + outbox.send(connection, few)


def _outbox_of(connection: sa.Connection) -> Outbox | None:
    """What a transaction has not sent yet; None on SQLite, and without the lock."""
    return connection.get_execution_options().get(OUTBOX)


class Database:
    """The catalog's database: SQLite in a file, or PostgreSQL."""

    def __init__(self, url: str | Path, *, lock_timeout: timedelta) -> None:
        self._timeout = lock_timeout
        # How long a transaction that holds the lock may be silent, on PostgreSQL.
        self.commit_timeout = Configuration().commit_timeout
        if isinstance(url, Path):
            self.url = sa.URL.create("sqlite", database=str(url))
        else:
            self.url = postgres.parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = self._open()
        self._pid = os.getpid()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._compiled: dict[Query, _Compiled] = {}  # the statements given to `rows`
        # The version of the catalog that this process knows; None while it is being opened.
        self.version: int | None = None
        # Whether the catalog was found to have another: then nothing is written any more.
        self.is_outdated = False
        # Threads of this process that hold the commit lock, or wait for it.
        self._locking = 0
        self._lock_left = threading.Condition()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each transaction under the lock; returns what ends that."""
        key = object()
        self._listeners[key] = listener

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def _open(self) -> sa.Engine:
        if self.is_sqlite:
            engine = sa.create_engine(
                self.url,
                connect_args={"timeout": self._timeout.total_seconds()},
                max_overflow=_MOST_CONNECTIONS,
                hide_parameters=True,  # a job's options may have secrets in them
            )
            event.listen(engine, "handle_error", _refuse_value)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        engine = postgres.open_engine(self.url, self._timeout, most=_MOST_CONNECTIONS)
        event.listen(engine, "handle_error", _refuse_value)
        return engine

    @property
    def engine(self) -> sa.Engine:
        """The engine of this process: a connection must not cross a fork."""
        if os.getpid() != self._pid:
            self._engine.dispose(close=False)
            self._engine = self._open()
            self._pid = os.getpid()
        return self._engine

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection for reading; each statement sees what is committed when it runs."""
        with self._faults(), self._alone() as connection:
            yield connection

    def _alone(self) -> sa.Connection:
        """A connection each of whose statements is a transaction: nothing is sent to begin one."""
        options = {"begins": False} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        return self.engine.connect().execution_options(**options)

    def write_one(self, statement: sa.Executable, values: Mapping[str, Any]) -> None:
        """Run one statement that creates no snapshot and needs no lock; it commits by itself."""
        with self._faults(), self._alone() as connection:
            connection.execute(statement, values)

    def rows(self, statement: Query, params: Mapping[str, Any]) -> list[Any]:
        """All rows of one statement that runs often, with as little overhead as possible.

        SQLAlchemy compiles it once; after that, it goes to the driver directly, and needs no
        transaction. Values are the driver's own: of other types than numbers and text, they
        only compare with each other.
        """
        engine = self.engine
        known = self._compiled.get(statement)
        if known is None:
            known = self._compiled[statement] = _Compiled(statement, engine)
        try:
            connection = engine.raw_connection()
            try:
                driver: Any = connection.driver_connection
                if self.is_sqlite:
                    return known.execute(driver, params)
                driver.autocommit = True
                try:
                    return known.execute(driver, params)
                finally:
                    driver.autocommit = False
            finally:
                connection.close()
        except (exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error):
            with self.read() as other:  # which says what is wrong
                return list(other.execute(statement, params))

    @contextmanager
    def read_at_once(self) -> Iterator[sa.Connection]:
        """A connection for reading all of whose statements see the same moment."""
        # SQLite does so anyway, from the first statement on.
        options = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._faults(), self.engine.connect().execution_options(**options) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that creates no snapshot; CommitLostError if its end is not known."""
        with self._transaction(immediate=True) as connection:
            yield connection

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[sa.Connection]:
        sent = False
        try:
            with (
                self._faults(),
                self.engine.connect().execution_options(**options) as connection,
                connection.begin(),
            ):
                yield connection
                sent = True
        except UnavailableError as error:
            if sent and not isinstance(error, CommitLostError):
                raise CommitLostError(*error.args) from error.__cause__
            raise

    @contextmanager
    def lock(self) -> Iterator[sa.Connection]:
        """The transaction of a commit: no other commit runs until it ends.

        On PostgreSQL it begins, and takes the lock, together with its first statement.
        """
        if self.is_sqlite:
            options: dict[str, Any] = {"immediate": True}
        else:
            # The driver shall not begin it: that would be a round trip of its own.
            asked = None if self.version is None else (VERSION, self._check_version)
            outbox = Outbox(self._timeout, self.commit_timeout, asked=asked)
            options = {"isolation_level": "AUTOCOMMIT", OUTBOX: outbox}
        with self._lock_left:
            self._locking += 1
        try:
            with self._transaction(**options) as connection:
                if self.is_sqlite and self.version is not None:
                    self._check_version(connection.exec_driver_sql(VERSION).scalar())
                yield connection
        finally:
            with self._lock_left:
                self._locking -= 1
                self._lock_left.notify_all()
        for listener in list(self._listeners.values()):
            listener()

    def _check_version(self, found: str | None) -> None:
        """Refuse to write to a catalog that was upgraded since it was opened."""
        if found != str(self.version):
            self.is_outdated = True
            raise InvalidError(
                f"this lake was upgraded: its catalog has version {found}, and this process knows "
                f"{self.version}; upgrade the package and start the process again"
            )

    def give_way(self, stop: threading.Event, longest: float = _LONGEST_WAY) -> None:
        """Wait while commits of this process wait for each other, but not for long."""
        end = time.monotonic() + longest
        with self._lock_left:
            while self._locking > 1 and not stop.is_set() and time.monotonic() < end:
                self._lock_left.wait(max(0.0, end - time.monotonic()))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (exc.StatementError, exc.TimeoutError) as error:
            raise self._translated(error) from error

    def _translated(self, error: exc.SQLAlchemyError) -> TailraceError:
        """An error of the database or its driver, as one of ours."""
        # The driver's own text has no password in it, and no value of a statement.
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        reason = said[0] if said else type(error).__name__
        code = getattr(getattr(error, "orig", None), "sqlstate", None)
        if type(error) is exc.DatabaseError and self.is_sqlite:
            # SQLite reports a damaged file, or one that is no database, as a plain DatabaseError.
            return CorruptError(f"the catalog {self.url.database}: {reason}")
        # Whatever ended the connection, however the driver classifies it.
        if getattr(error, "connection_invalidated", False):
            return UnavailableError(f"the catalog {self.shown} did not answer: {reason}")
        if code in _MISSING or reason.startswith("no such "):
            return CorruptError(f"the catalog {self.shown} lacks something: {reason}")
        if isinstance(error, exc.IntegrityError):
            return ConflictError(f"another was first to write to the catalog: {reason}")
        if isinstance(error, exc.DataError | exc.ProgrammingError | exc.NotSupportedError):
            return InvalidError(f"the catalog {self.shown} refused: {reason}")
        return UnavailableError(f"the catalog {self.shown} did not answer: {reason}")

    @property
    def shown(self) -> str:
        """Where it is, for messages: without password and options, which may hold secrets."""
        plain = self.url.set(drivername=self.url.get_backend_name(), query={})
        return plain.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


class _Compiled:
    """A statement as the driver takes it."""

    def __init__(self, statement: Query, engine: sa.Engine) -> None:
        self._compiled = statement.compile(engine)
        # Rows have names, as SQLAlchemy's have.
        names = statement.selected_columns.keys()
        self._row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]

    def execute(self, driver: Any, params: Mapping[str, Any]) -> list[Any]:
        given = self._compiled.construct_params(params)
        order = self._compiled.positiontup
        cursor = driver.cursor()
        try:
            cursor.execute(
                self._compiled.string, [given[name] for name in order] if order else given
            )
            return list(map(self._row._make, cursor.fetchall()))
        finally:
            cursor.close()


def _refuse_value(context: sa.ExceptionContext) -> None:
    """Report a value that the driver cannot encode as invalid, not as a fault of the database."""
    error = context.original_exception
    if isinstance(error, OverflowError | UnicodeError):
        raise InvalidError(f"the catalog cannot store a value: {error}") from error


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # Leave BEGIN to _begin_sqlite: Python's sqlite3 would begin lazily, after the first read.
    connection.isolation_level = None
    # In WAL mode readers never wait for the writer; FULL makes a commit survive a power cut.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get("begins", True):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")
