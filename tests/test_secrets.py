"""Secrets are in no message, log line, repr or output, however they were written."""

from __future__ import annotations

import io
import logging
import sqlite3
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import tailrace
from tailrace.cli import printing
from tailrace.cli.main import main
from tailrace.datasource.place import place_of
from tailrace.loading import load
from tests.support import process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = tailrace.Settings(lock_timeout=timedelta(milliseconds=200))
# Pieces of a password, whatever stands between them.
FIRST, SECOND = "hunter2", "sword"
MARKS = ["", "@", "/", "#", "?", ":", "%", "&", "=", "[", "@@", "/@", "%40@", " ", "\\"]


class Everything:
    """All that a user, or who reads the logs, can see of what happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        self._caplog, self._texts = caplog, io.StringIO()
        monkeypatch.setattr(printing, "_errors", self._texts)
        self._monkeypatch = monkeypatch

    def run(self, call: Callable[[], Any]) -> BaseException | None:
        """Call it; what it raises is told with its causes."""
        with redirect_stdout(self._texts), redirect_stderr(self._texts):
            try:
                self._texts.write(repr(call()))
            except (Exception, SystemExit) as error:  # noqa: BLE001  (all of it is looked at)
                self._texts.write("".join(traceback.format_exception(error)))
                return error
        return None

    def command(self, *args: str) -> None:
        """The command line, with these words."""
        self._monkeypatch.setattr(sys, "argv", ["tailrace", *args])
        self.run(main)

    @property
    def text(self) -> str:
        logged = [f"{record.getMessage()} {record.__dict__}" for record in self._caplog.records]
        return self._texts.getvalue() + "\n".join(logged)

    def check(self) -> None:
        for piece in (FIRST, SECOND):
            assert piece not in self.text


@pytest.fixture
def everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Everything:
    monkeypatch.chdir(tmp_path)
    return Everything(monkeypatch, caplog)


@pytest.fixture(scope="module")
def closed_port() -> int:
    """Where nobody listens."""
    return process.free_port()


@pytest.mark.parametrize("mark", MARKS)
def test_a_password_of_any_letters_is_never_seen(
    everything: Everything, tmp_path: Path, closed_port: int, mark: str
) -> None:
    host = f"{process.HOST}:{closed_port}"
    for url in (
        f"postgresql://someone:{FIRST}{mark}{SECOND}@{host}/db",
        f"postgresql://someone@{host}/db?password={FIRST}{mark}{SECOND}",
        f"postgres:/someone:{FIRST}{mark}{SECOND}@{host}/db",
        f"host={process.HOST} port={closed_port} password={FIRST}{mark}{SECOND}",
    ):

        def connect(url: str = url) -> object:
            return tailrace.connect(url, data=tmp_path / "data", settings=QUICK)

        def read(url: str = url) -> object:
            return place_of({"lake": url, "table": "t"}, {}).open(QUICK)

        assert isinstance(everything.run(connect), tailrace.TailraceError)
        assert isinstance(everything.run(read), tailrace.TailraceError)
    everything.check()
    assert [path.name for path in tmp_path.iterdir()] == []  # none became a directory


@pytest.mark.parametrize("mark", ["", "@", "/"])
def test_the_command_line_never_prints_a_password(
    everything: Everything, closed_port: int, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr("tailrace.lake.Settings", lambda: QUICK)
    for url in (
        f"postgresql://someone:{FIRST}{mark}{SECOND}@{process.HOST}:{closed_port}/db",
        f"postgresql:/someone:{FIRST}{mark}{SECOND}@{process.HOST}:{closed_port}/db",
    ):
        everything.command("tables", "--lake", url)
        everything.command("sql", "-c", "SHOW TABLES", "--lake", url)
        everything.command("doctor", "--lake", url)
        everything.command("doctor", "--lake", url, "-o", "json")
        monkeypatch.setenv("TAILRACE_LAKE", url)
        everything.command("status")
    assert "error: " in everything.text
    assert "catalog" in everything.text
    everything.check()


def test_an_ambiguous_address_is_refused_with_advice() -> None:
    for url in (
        "postgresql://someone:p@ss@host/db",
        "postgresql://someone:p/ss@host/db",
        "postgresql://someone:p?ss@host/db",
        "postgresql://someone:p#ss@host/db",
        "postgresql://host/db?options=a@b",
    ):
        with pytest.raises(tailrace.InvalidError, match=r"percent-encode what is special.*%40"):
            tailrace.connect(url)


def test_an_option_that_postgres_does_not_have_is_refused() -> None:
    with pytest.raises(tailrace.InvalidError, match=r"'bogus'.*sslmode"):
        tailrace.connect("postgresql://host/db?bogus=1")


def test_a_password_that_is_percent_encoded_is_taken(
    postgres_url: str, everything: Everything, tmp_path: Path
) -> None:
    password = quote(f"{FIRST}@/?#:%{SECOND}", safe="")
    url = postgres_url.replace("@", f":{password}@")
    with tailrace.connect(url, data=tmp_path / "data") as lake:
        assert lake.runtime.database.url.password == f"{FIRST}@/?#:%{SECOND}"
        for shown in (lake, lake.runtime, lake.runtime.database, lake.runtime.database.engine):
            everything.run(lambda shown=shown: shown)
        everything.run(lambda: lake.runtime.database.shown)
        everything.run(lambda: lake.sql("SELEC"))
    everything.check()


@pytest.mark.parametrize("mark", MARKS)
def test_credentials_in_a_place_for_objects_are_refused_and_not_repeated(
    everything: Everything, tmp_path: Path, mark: str
) -> None:
    secret = f"{FIRST}{mark}{SECOND}"
    with tailrace.connect(tmp_path / "good") as lake:
        lake.create_table("t", {"id": "int"})
        for place in (f"s3://key:{secret}@bucket/x", f"gs://bucket/x?sig={secret}"):
            opened = everything.run(lambda place=place: tailrace.connect("lake", data=place))
            assert isinstance(opened, tailrace.InvalidError)
        for file in (f"s3://key:{secret}@bucket/x.csv", f"ftp://key:{secret}@host/x.csv"):
            loaded = everything.run(lambda file=file: load(lake, file, "t"))
            assert isinstance(loaded, tailrace.InvalidError)
    everything.check()


def test_storage_options_are_never_repeated(everything: Everything, tmp_path: Path) -> None:
    for number, options in enumerate(
        (
            {"secret_access_key": FIRST, "no_such_option": SECOND},
            {"secret_access_key": [FIRST]},
            {"secret_access_key": {"value": FIRST}},
            {5: FIRST},
            f"{FIRST}={SECOND}",
            {"endpoint": f"http://{FIRST}:{SECOND}@127.0.0.1:1", "retry_timeout": FIRST},
        )
    ):

        def write(options: Any = options, number: int = number) -> object:
            lake = tailrace.connect(
                tmp_path / str(number), data="s3://bucket/x", storage_options=options
            )
            everything.run(lambda: (lake, lake.runtime, lake.runtime.storage))
            with lake:
                lake.create_table("t", {"id": "int"}).append([{"id": 1}])
            return lake

        assert isinstance(everything.run(write), tailrace.InvalidError)
    everything.check()


def test_what_a_job_is_told_is_not_in_the_catalogs_errors(
    everything: Everything, tmp_path: Path
) -> None:
    spec = {"consumer": {"kind": "mailer", "password": FIRST}}
    with tailrace.connect(tmp_path / "lake", settings=QUICK) as lake:
        lake.create_table("t", {"id": "int"})
        holder = sqlite3.connect(tmp_path / "lake" / "catalog.sqlite", isolation_level=None)
        holder.execute("DROP TABLE tailrace_job_source")
        holder.close()
        broken = everything.run(lambda: lake.jobs.register("t", "mail", spec))
        assert isinstance(broken, tailrace.TailraceError)
    everything.check()
