"""The tutorial, block by block: what it shows to type works, and what it shows to see is seen."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
# Times differ from run to run.
SECONDS = re.compile(r"\d+\.\d{3,}|\(\d+\.\d+ s\)|0\.\d+$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    shows: str | None  # the output that the tutorial shows after it


def blocks() -> Iterator[Block]:
    text = TUTORIAL.read_text(encoding="utf-8")
    found = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block[1] in ("sh", "python"):
            shows = after[2] if after is not None and after[1] == "text" else None
            yield Block(block[1], block[2], text[: block.start()].count("\n") + 1, shows)


def words(text: str) -> list[list[str]]:
    """Lines by their words, with times taken out and without what only fills a table."""
    return [line.split() for line in SECONDS.sub("", text).splitlines() if line.strip()]


# What a shell starts: it has the test's own process do the work, which has a Spark already.
STAND_IN = """\
#!{python} -SE
import json, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    server.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    answer = json.loads(server.makefile().read())
sys.stdout.write(answer["stdout"])
sys.stderr.write(answer["stderr"])
sys.exit(answer["status"])
"""


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        done = CliRunner().invoke(app, json.loads(self.rfile.readline()))
        said = f"{done.stderr}{done.exception or ''}"
        answer = {"status": done.exit_code, "stdout": done.stdout, "stderr": said}
        self.wfile.write(json.dumps(answer).encode())


@contextlib.contextmanager
def stand_in() -> Iterator[Path]:
    """A directory whose `tailrace` is run by this process."""
    with tempfile.TemporaryDirectory() as directory:  # paths of sockets are limited in length
        place = f"{directory}/socket"
        program = Path(directory, "tailrace")
        program.write_text(STAND_IN.format(python=sys.executable, place=place))
        program.chmod(0o755)
        with socketserver.UnixStreamServer(place, Answer) as server:
            serving = threading.Thread(target=server.serve_forever, args=(0.05,))
            serving.start()
            try:
                yield program.parent
            finally:
                server.shutdown()
                serving.join()


@pytest.mark.early
@pytest.mark.usefixtures("spark")
def test_the_tutorial_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in() as programs:
        follow(tmp_path, monkeypatch, programs)


@pytest.mark.stress
@pytest.mark.usefixtures("spark")
def test_the_tutorial_works_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command is a process, and starts a Spark if it needs one."""
    follow(tmp_path, monkeypatch, Path(sys.executable).parent)


def follow(place: Path, monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("TAILRACE_LAKE", raising=False)
    path = f"{programs}:{os.environ['PATH']}"
    names: dict[str, Any] = {}
    count = 0
    for block in blocks():
        where = f"docs/tutorial.md, line {block.line}"
        if block.kind == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{where}: {done.stdout}{done.stderr}"
            said = done.stdout
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, where, "exec"), names)
            said = out.getvalue()
        if block.shows is not None:
            wanted = words(block.shows)
            assert words(said)[-len(wanted) :] == wanted, where
        count += 1
    assert count >= 12
