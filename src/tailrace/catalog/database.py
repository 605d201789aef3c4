"""Opens the catalog's database and gives its transactions.

Owned here: the engine, the commit lock, and the translation of database faults into our errors.
Always true: writes that create a snapshot or touch the job log happen under the commit lock, one
at a time; whoever listens is told of each, on PostgreSQL also in other processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy import event, exc

from tailrace.configuration import Configuration
from tailrace.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    TailraceError,
    UnavailableError,
)

# Any constant will do; it names the commit lock of a lake's database in PostgreSQL.
_ADVISORY_LOCK = 0x7461696C72616365
# Beyond those kept open: a worker that waits for the lock holds one.
_MOST_CONNECTIONS = 100
# Of the server's sessions, so that one whose client's machine is gone ends, and lets go of what it
# holds: after half a minute if the client does not answer, at last if it does not say anything.
_SESSION = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "idle_in_transaction_session_timeout": "1h",
}
# The same of our side, in libpq's words: a server that is gone is an error, and no eternal wait.
_CLIENT = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
# What PostgreSQL calls out at the end of each transaction under the lock.
CHANNEL = "tailrace"
# PostgreSQL's codes for a schema, table or column that is not there.
_MISSING = ("3F000", "42P01", "42703")


T = TypeVar("T")


class CommitLostError(UnavailableError):
    """COMMIT was sent and no answer came: it may have happened. See `store.outcome`."""


def in_batches(items: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    """Items in lists of a length that a statement takes as parameters."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class Database:
    """The catalog's database: SQLite in a file, or PostgreSQL."""

    def __init__(self, url: str | Path, *, lock_timeout: timedelta) -> None:
        self._timeout = lock_timeout
        # How long a transaction that holds the lock may be silent, on PostgreSQL.
        self.commit_timeout = Configuration().commit_timeout
        if isinstance(url, Path):
            self.url = sa.URL.create("sqlite", database=str(url))
        else:
            self.url = _postgres_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = self._open()
        self._pid = os.getpid()
        self._listeners: dict[object, Callable[[], None]] = {}
        self._said: dict[sa.Select[Any], Any] = {}  # statements of `row`, as the driver takes them

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called after each transaction under the lock; returns how to end it."""
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
        # A catalog read must not hang for ever on a server that has gone away.
        arguments: dict[str, Any] = {"connect_timeout": max(2, int(self._timeout.total_seconds()))}
        arguments |= {name: value for name, value in _CLIENT.items() if name not in self.url.query}
        if "options" not in self.url.query:
            arguments["options"] = " ".join(
                f"-c {name}={value}" for name, value in _SESSION.items()
            )
        engine = sa.create_engine(
            self.url,
            connect_args=arguments,
            pool_pre_ping=True,
            max_overflow=_MOST_CONNECTIONS,
            hide_parameters=True,
        )
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
        with self._faults(), self.engine.connect() as connection:
            yield connection

    def row(self, statement: sa.Select[Any], params: Mapping[str, Any]) -> Sequence[Any] | None:
        """The first row of a statement that is asked again and again, as quickly as may be.

        SQLAlchemy says it once; after that, the driver is asked directly.
        """
        engine = self.engine
        said = self._said.get(statement)
        if said is None:
            said = self._said[statement] = statement.compile(engine)
        given = said.construct_params(params)
        values: Any = [given[name] for name in said.positiontup] if said.positiontup else given
        try:
            connection = engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute(said.string, values)
                row: Sequence[Any] | None = cursor.fetchone()
            finally:
                connection.close()
        except (exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error):
            with self.read() as other:  # which says what is wrong
                return other.execute(statement, params).first()
        return row

    @contextmanager
    def read_at_once(self) -> Iterator[sa.Connection]:
        """A connection for reading all of whose statements see the same moment."""
        # In SQLite that is so anyway, from the first statement on.
        options = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._faults(), self.engine.connect().execution_options(**options) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that creates no snapshot; CommitLostError if its end is not known."""
        sent = False
        try:
            with (
                self._faults(),
                self.engine.connect().execution_options(immediate=True) as connection,
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
        """The transaction of a commit: no other commit runs until it ends."""
        with self.write() as connection:
            if not self.is_sqlite:
                # Who hangs with the lock in hand is put out by the server, and cannot commit.
                limits = {
                    "lock_timeout": self._timeout,
                    "idle_in_transaction_session_timeout": self.commit_timeout,
                }
                connection.execute(
                    sa.select(
                        *(
                            sa.func.set_config(name, f"{limit.total_seconds():.3f}s", True)
                            for name, limit in limits.items()
                        )
                    )
                )
                # Called out when this transaction commits, and not before.
                lock = sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)
                connection.execute(sa.select(lock, sa.func.pg_notify(CHANNEL, "")))
            yield connection
        for listener in list(self._listeners.values()):
            listener()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (exc.StatementError, exc.TimeoutError) as error:
            raise self._translated(error) from error

    def _translated(self, error: exc.SQLAlchemyError) -> TailraceError:
        """What the database or its driver says, as one of our errors."""
        # The driver's own text has no password in it, and no value of a statement.
        said = str(getattr(error, "orig", None) or error).strip().splitlines()
        reason = said[0] if said else type(error).__name__
        code = getattr(getattr(error, "orig", None), "sqlstate", None)
        if type(error) is exc.DatabaseError and self.is_sqlite:
            # Of no kind of its own: what SQLite says of a file that is damaged, or none of its.
            return CorruptError(f"the catalog {self.url.database}: {reason}")
        # Also what has ended a connection, whatever the driver calls it.
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
        """Where it is, for messages: without the password, and without options, which may be."""
        plain = self.url.set(drivername=self.url.get_backend_name(), query={})
        return plain.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _postgres_url(url: str) -> sa.URL:
    """The address, checked. Of a wrong one nothing is repeated: it may have a password in it."""
    # An @ or a / in a password ends it too early; the rest would pass for a host or a database.
    before = url.partition("://")[2].rpartition("@")[0]
    if "@" in before or set("/?#") & set(before):
        raise InvalidError(
            "the catalog's URL can be read in more than one way: percent-encode what is special "
            "in its parts (@ as %40, / as %2F, : as %3A, ? as %3F, # as %23, % as %25)"
        )
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise InvalidError(
            "cannot read the catalog's URL: give a directory or postgresql://user@host/database"
        ) from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidError(
            f"a catalog of kind {parsed.drivername!r} is not supported: "
            "give a directory (SQLite) or postgresql://user@host/database"
        )
    try:
        import psycopg
    except ImportError as error:
        raise InvalidError("PostgreSQL needs an extra: pip install 'tailrace[postgres]'") from error
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    for option in parsed.query:
        if option not in known:
            raise InvalidError(
                f"the catalog's URL has an option that PostgreSQL does not know: {option[:40]!r}; "
                "it takes those of libpq, such as ?sslmode=require"
            )
    # As libpq reads it: else a name with one of these marks could not be written.
    name = parsed.database and unquote(parsed.database)
    return parsed.set(drivername="postgresql+psycopg", database=name)


def _refuse_value(context: sa.ExceptionContext) -> None:
    """What a driver raises of a value that it has no form for is no fault of the database."""
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
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
