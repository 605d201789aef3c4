"""A PostgreSQL server for one test run: own port, own data, no service, no root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from tests.support import memory, process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER = "tailrace"
FIND = Path(__file__).parents[2] / "tools" / "postgres.sh"


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """Where a running server is reached."""

    port: int
    user: str = USER
    # For tests of what happens while it is away; on the same port, with the same data.
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    kill: Callable[[], None] = lambda: None  # at once, with all sessions: the next start recovers

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql://{self.user}@{process.HOST}:{self.port}/{database}"

    def create_database(self) -> str:
        """A new, empty database; returns its name."""
        name = f"t_{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, also one that somebody is still connected to."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextlib.contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """Run a server while the block lasts."""
    programs = Path(_find_programs())
    account = _account()
    home = _directory_for(account)
    data = home / "data"
    try:
        subprocess.run(
            [
                *(str(programs / "initdb"), "--pgdata", str(data), "--username", USER),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=home,
            **account,
        )

        def start_on(port: int) -> subprocess.Popen[bytes]:
            return process.start(
                [str(programs / "postgres"), "-D", str(data), *_settings(port)],
                ready=lambda: _answers(port),
                log=home / "log",
                cwd=home,
                **account,
            )

        server, port = process.start_on_free_port(start_on)

        def start() -> None:
            nonlocal server
            server = start_on(port)

        # To PostgreSQL, interrupt is a fast and quit an immediate end; its children go with it.
        def stop() -> None:
            process.stop(server, (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))

        def kill() -> None:
            process.stop(server, (signal.SIGQUIT, signal.SIGKILL))

        try:
            yield PostgresServer(port=port, start=start, stop=stop, kill=kill)
        finally:
            stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _find_programs() -> str:
    found = subprocess.run([FIND, "--find"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise process.ServerFailedError(found.stderr.strip())
    return found.stdout.strip()


def _settings(port: int) -> list[str]:
    settings = {
        "listen_addresses": process.HOST,
        "port": port,
        "unix_socket_directories": "",  # paths of sockets are limited in length; TCP is not
        "max_connections": 200,
        "fsync": "off",  # nothing here has to survive the machine
        "max_wal_size": "256MB",  # the data may be in memory
        "timezone": "UTC",
    }
    return [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]


def _answers(port: int) -> bool:
    try:
        psycopg.connect(PostgresServer(port=port).url(), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _account() -> dict[str, Any]:
    """As whom to run: PostgreSQL refuses root, so root gives its rights away."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise process.ServerFailedError("no unprivileged account: neither postgres nor nobody exists")


def _directory_for(account: dict[str, Any]) -> Path:
    # Not pytest's tmp_path: its parents are closed to every other account.
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")]
    if (in_memory := memory.place()) is not None:
        candidates.insert(0, in_memory)
    parent = next((path for path in candidates if not account or _open_to_all(path)), candidates[0])
    home = Path(tempfile.mkdtemp(prefix="tailrace-postgres-", dir=parent))
    if account:
        os.chown(home, account["user"], account["group"])
    return home


def _open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
