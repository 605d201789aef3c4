"""PostgreSQL as the catalog's database: its address, its connections, and what is sent at once.

A round trip takes longer than a small statement. So a transaction under the commit lock begins
together with its first statement, and statements that need no answer go in one message (`Outbox`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy import event, exc

from tailrace.errors import InvalidError

Values = Mapping[str, Any] | Sequence[Mapping[str, Any]]

# Any constant will do; it names the commit lock of a lake's database in PostgreSQL.
_ADVISORY_LOCK = 0x7461696C72616365
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
# How a transaction under the lock begins on PostgreSQL. The server ends a session that hangs with
# the lock: it can no longer commit. The notification is sent with the commit, not before.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config('lock_timeout', %s, true),
       set_config('idle_in_transaction_session_timeout', %s, true);
SELECT pg_advisory_xact_lock(%s), pg_notify(%s, '');
"""
_BEGUN = 3  # its statements
# The most statements that are sent at once.
_AT_ONCE = 200
# Execution options: what a transaction under the lock has not sent yet; and whether statements
# have their values in them, and so are not to be prepared.
OUTBOX, _IS_TEXT = "tailrace_outbox", "tailrace_is_text"


def open_engine(url: sa.URL, timeout: timedelta, *, most: int) -> sa.Engine:
    """An engine of connections that are checked, and whose sessions end with their client.

    `most`: connections beyond those that are kept open.
    """
    # A catalog read must not hang for ever on a server that has gone away.
    arguments: dict[str, Any] = {"connect_timeout": max(2, int(timeout.total_seconds()))}
    arguments |= {name: value for name, value in _CLIENT.items() if name not in url.query}
    if "options" not in url.query:
        arguments["options"] = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    engine = sa.create_engine(url, connect_args=arguments, max_overflow=most, hide_parameters=True)
    event.listen(engine, "do_execute", _execute)
    event.listen(engine, "do_executemany", _execute_many)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_check_unless_used, engine.dialect))
    return engine


def parse_url(url: str) -> sa.URL:
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


class Outbox:
    """What a PostgreSQL connection has not sent yet of a transaction under the lock.

    It is sent as text, several statements in one message. A pipeline of the driver's ends with a
    message after which the server does not put out a session that holds the lock and is silent.
    """

    def __init__(
        self, *limits: timedelta, asked: tuple[str, Callable[[Any], None]] | None = None
    ) -> None:
        """`limits` are how long it waits for the lock, and how long it may then be silent.

        `asked` is a question, and who gets its answer, as soon as the lock is there.
        """
        self._asked = asked
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
        every = [text for each in texts for text in each]
        for start in range(0, len(every), _AT_ONCE):
            some, options = every[start : start + _AT_ONCE], {_IS_TEXT: True}
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
        asked = None
        if not self._has_begun:
            begin = _with_values(cursor, _BEGIN, [*self._limits, _ADVISORY_LOCK, CHANNEL])
            asked, self._has_begun = self._asked, True
            text = begin + (f"{asked[0]};\n" if asked else "") + text
        cursor.execute(text, prepare=False)
        self._counts = [cursor.rowcount]
        while cursor.nextset():  # in the end, it is at the result of the last one
            self._counts.append(cursor.rowcount)
            if asked is not None and len(self._counts) == _BEGUN + 1:
                row = cursor.fetchone()
                asked[1](None if row is None else row[0])


def _with_values(cursor: Any, statement: str, values: Any) -> str:
    import psycopg

    return psycopg.ClientCursor(cursor.connection).mogrify(statement, values)


def _execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
    outbox: Outbox | None = context.execution_options.get(OUTBOX)
    return outbox is not None and outbox.execute(cursor, statement, values, context)


def _execute_many(cursor: Any, statement: str, rows: Any, context: Any) -> bool:
    outbox: Outbox | None = context.execution_options.get(OUTBOX)
    return outbox is not None and outbox.execute_many(cursor, statement, rows)
