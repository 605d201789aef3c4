"""The catalog's database: connections, transactions, and the commit lock.

Owned here: the engine, the commit lock, and the translation of database faults into our errors.
Always true: writes that create a snapshot or touch the job log happen under the commit lock, one
at a time; whoever listens is told of each, on PostgreSQL also in other processes.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
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
# On top of those kept open: each worker that waits for the lock holds one.
_MOST_CONNECTIONS = 100
# A connection that was idle for so many seconds is checked before it is used again.
_IDLE = 1.0
# Server settings that end a session whose client is gone, and so free its locks: after half a
# minute if the client's machine does not answer, after an hour if it only stays silent.
_SESSION = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "idle_in_transaction_session_timeout": "1h",
}
# The same on our side, as libpq options: a server that is gone is an error, not an endless wait.
_CLIENT = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
# The channel that PostgreSQL notifies at the end of each transaction under the lock.
CHANNEL = "tailrace"
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


# How a transaction under the lock begins on PostgreSQL. The server ends a session that hangs with
# the lock: it can no longer commit. The notification is sent with the commit, not before.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config('lock_timeout', %s, true),
       set_config('idle_in_transaction_session_timeout', %s, true);
SELECT pg_advisory_xact_lock(%s), pg_notify(%s, '');
"""
# The most statements that PostgreSQL gets at once; and the most rows of one that are sent so: for
# more it is quicker to prepare the statement.
_AT_ONCE, _FEW_ROWS = 200, 50
# Execution options: what a transaction under the lock has not sent yet; and whether statements
# have their values in them, and so are not to be prepared.
_OUTBOX, _IS_TEXT = "tailrace_outbox", "tailrace_is_text"

Values = Mapping[str, Any] | Sequence[Mapping[str, Any]]


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


def _outbox_of(connection: sa.Connection) -> _Outbox | None:
    return connection.get_execution_options().get(_OUTBOX)


class _Outbox:
    """What a PostgreSQL connection has not sent yet of a transaction under the lock.

    It is sent as text, several statements in one message. A pipeline of the driver's ends with a
    message after which the server does not put out a session that holds the lock and is silent.
    """

    def __init__(self, *limits: timedelta) -> None:
        """`limits` are how long it waits for the lock, and how long it may then be silent."""
        self._limits = [f"{limit.total_seconds():.3f}s" for limit in limits]
        self._has_begun = False
        self._gathered: list[str] | None = None  # statements that are sent together
        self._ahead: list[str] = []  # those that go ahead of the next statement
        self._counts: list[int] = []

    def send(
        self, connection: sa.Connection, statements: Sequence[tuple[sa.Executable, Values]]
    ) -> list[int]:
        """Execute statements; how many rows each of them has changed."""
        texts = [self._gather(connection, *one) for one in statements]
        counts: list[int] = []
        for some in in_batches((text for each in texts for text in each), _AT_ONCE):
            options = {_IS_TEXT: True}
            connection.exec_driver_sql(";\n".join(some), execution_options=options).close()
            counts += self._counts[-len(some) :]
        rest = iter(counts)
        return [sum(islice(rest, len(each))) for each in texts]

    def put_ahead(
        self, connection: sa.Connection, statements: Sequence[tuple[sa.Executable, Values]]
    ) -> None:
        """Send statements together with the next one."""
        self._ahead = [text for one in statements for text in self._gather(connection, *one)]

    def _gather(
        self, connection: sa.Connection, statement: sa.Executable, values: Values
    ) -> list[str]:
        """A statement with its values, once for each row."""
        texts = self._gathered = []
        try:
            connection.execute(statement, values)
        finally:
            self._gathered = None
        return texts

    def execute(self, cursor: Any, statement: str, values: Any, context: Any) -> bool:
        """Take over what SQLAlchemy executes; False if it is to do it itself."""
        if context.execution_options.get(_IS_TEXT):
            self._execute(cursor, statement)
        elif self._gathered is not None:
            self._gathered.append(_with_values(cursor, statement, values))
        elif self._ahead or not self._has_begun:
            self._execute(cursor, _with_values(cursor, statement, values))
        else:
            return False
        return True

    def execute_many(self, cursor: Any, statement: str, rows: Any) -> bool:
        """The same for several rows."""
        if self._gathered is not None:
            self._gathered += (_with_values(cursor, statement, values) for values in rows)
            return True
        if not self._has_begun:
            self._execute(cursor, "")
        return False

    def _execute(self, cursor: Any, text: str) -> None:
        text, self._ahead = ";\n".join([*self._ahead, text]), []
        if not self._has_begun:
            text = _with_values(cursor, _BEGIN, [*self._limits, _ADVISORY_LOCK, CHANNEL]) + text
            self._has_begun = True
        cursor.execute(text, prepare=False)
        self._counts = [cursor.rowcount]
        while cursor.nextset():  # in the end, it is at the result of the last one
            self._counts.append(cursor.rowcount)


def _with_values(cursor: Any, statement: str, values: Any) -> str:
    import psycopg

    return psycopg.ClientCursor(cursor.connection).mogrify(statement, values)


def _execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
    outbox: _Outbox | None = context.execution_options.get(_OUTBOX)
    return outbox is not None and outbox.execute(cursor, statement, values, context)


def _execute_many(cursor: Any, statement: str, rows: Any, context: Any) -> bool:
    outbox: _Outbox | None = context.execution_options.get(_OUTBOX)
    return outbox is not None and outbox.execute_many(cursor, statement, rows)


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
        self._compiled: dict[Query, _Compiled] = {}  # the statements given to `rows`

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
            max_overflow=_MOST_CONNECTIONS,
            hide_parameters=True,
        )
        event.listen(engine, "handle_error", _refuse_value)
        event.listen(engine, "do_execute", _execute)
        event.listen(engine, "do_executemany", _execute_many)
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", partial(_check_unless_used, engine.dialect))
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
            with self._transaction(immediate=True) as connection:
                yield connection
        else:
            # The driver shall not begin it: that would be a round trip of its own.
            options: dict[str, Any] = {
                "isolation_level": "AUTOCOMMIT",
                _OUTBOX: _Outbox(self._timeout, self.commit_timeout),
            }
            with self._transaction(**options) as connection:
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


def _postgres_url(url: str) -> sa.URL:
    """Check and parse the address. Errors do not repeat it: it may hold a password."""
    # An unescaped @ or / ends a password early, and its rest would be taken for a host or database.
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
    # As libpq does, so that names may contain special characters.
    name = parsed.database and unquote(parsed.database)
    return parsed.set(drivername="postgresql+psycopg", database=name)


def _refuse_value(context: sa.ExceptionContext) -> None:
    """Report a value that the driver cannot encode as invalid, not as a fault of the database."""
    error = context.original_exception
    if isinstance(error, OverflowError | UnicodeError):
        raise InvalidError(f"the catalog cannot store a value: {error}") from error


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _check_unless_used(dialect: sa.Dialect, connection: Any, record: Any, _proxy: Any) -> None:
    """Ask a connection that was idle whether its server is there; the pool replaces it if not."""
    used = record.info.get("used")
    if used is None or time.monotonic() - used < _IDLE:
        return
    try:
        dialect.do_ping(connection)
    except Exception as error:  # whatever it is, the connection is of no use
        raise exc.DisconnectionError("the server has gone") from error


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
