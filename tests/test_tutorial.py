"""The tutorial, block by block: what it shows to type works, and what it shows to see is seen."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.usefixtures("spark")
def test_the_tutorial_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_LAKE", raising=False)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
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
