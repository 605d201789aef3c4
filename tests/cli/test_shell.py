"""The SQL shell, in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import tailrace
from tailrace.cli.shell import _Names

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][AB0]|\x1b[=>]|\r")
PROMPT = "tailrace>"


class Terminal:
    """A program in a pseudo-terminal: what a person types, and what they see."""

    def __init__(self, command: list[str], **options: object) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Without a terminal of its own, Ctrl-C would reach nobody.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
            **options,
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, timeout: float = 60) -> str:
        """What was seen since the last time, up to this text."""
        deadline = time.monotonic() + timeout
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"not seen: {text!r} in {self.seen!r}"
            if select.select([self._ours], [], [], left)[0]:
                try:
                    more = os.read(self._ours, 65536).decode(errors="replace")
                except OSError:  # it has ended
                    more = ""
                assert more, f"it ended: {self.seen!r}"
                # Where the cursor is, which a terminal is asked for.
                if "\x1b[6n" in more:
                    os.write(self._ours, b"\x1b[1;1R")
                self.seen += ESCAPES.sub("", more)
        found, _, self.seen = self.seen.partition(text)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    program = str(Path(sys.executable).with_name("tailrace"))
    environment = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(tmp_path / "state")}
    made = Terminal([program, "sql", "--lake", "shop"], cwd=tmp_path, env=environment)
    yield made
    made.close()


@pytest.mark.early
def test_the_shell_runs_cancels_and_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("0 tables")
    terminal.wait_for(PROMPT)
    # Several lines, up to the semicolon.
    terminal.type("CREATE TABLE purchases\r(id INT);\r")
    assert "..." in terminal.wait_for("table main.purchases created")
    terminal.wait_for(PROMPT)
    terminal.type("INSERT INTO purch\t")  # the name is completed
    terminal.wait_for("ases")
    terminal.type(" VALUES (1), (2);\r")
    terminal.wait_for("2 rows inserted into main.purchases")
    terminal.type("SELEC 1;\r")
    terminal.wait_for("did you mean SELECT?")
    # A query that would take for ever is cancelled by Ctrl-C; the session stays.
    terminal.type("SELECT count(*) FROM range(1000000000000) WHERE rand() < 0.5;\r")
    terminal.wait_for("starting Spark")  # even now, before there is anything to cancel
    terminal.type("\x03")
    terminal.wait_for("cancelled", timeout=120)
    terminal.type("SELECT sum(id) AS total FROM purchases;\r")
    assert "total" in terminal.wait_for("1 row (")
    terminal.type("exit\r")
    assert terminal.process.wait(30) == 0
    assert "SELECT sum(id)" in (tmp_path / "state/tailrace/history").read_text()


def test_names_are_completed_where_they_are_written(tmp_path: Path) -> None:
    with tailrace.connect(tmp_path / "lake") as lake:
        lake.sql("CREATE TABLE page (body STRING); CREATE INDEX bft ON page USING FULLTEXT (body)")
        names = _Names(lake)
        names.refresh()

    def options(text: str) -> set[str]:
        return {one.text for one in names.get_completions(Document(text), CompleteEvent())}

    assert "page" in options("SELECT * FROM pa")
    assert "tailrace.indexes" in options("SELECT * FROM tailrace.ind")
    assert "fulltext_search(" in options("SELECT * FROM full")
    assert options("SELECT * FROM fulltext_search('bf") == {"bft"}
    assert "body" in options("SELECT count(bo")
    assert "CREATE INDEX" in options("CREATE")
