"""The help of each command: what it does, and how it is called."""

from __future__ import annotations

import pytest
import typer.main
from typer.testing import CliRunner

from tailrace.cli.main import app

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert f"tailrace {command}" in result.output.partition("Example")[2]


def test_all_commands_are_listed() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert [name for name in COMMANDS if name not in result.output] == []
