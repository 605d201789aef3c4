"""What an error advises: each front door words it for its users, and none in another's language."""

from __future__ import annotations

import pickle
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.errors import Action, Fix, TailraceError, in_plain_words
from tailrace.propagation.retry import message_of
from tailrace.sql.statements import run

if TYPE_CHECKING:
    from pathlib import Path

# What only one of the doors' users would write.
PYTHON = re.compile(r"\w\(|\w=(?!>)|\blake\.|\bindex\.|Settings|storage_options")
SQL = re.compile(r"\b(SHOW|CREATE|REFRESH|DROP|SELECT|MERGE|RESUME|CASCADE|WITH)\b|=>")
COMMANDS = re.compile(r"\btailrace \w|--\w")


def error_with(action: Action) -> TailraceError:
    fix = Fix(action, "on_existing", "replace")
    return tailrace.InvalidError("it is not there", fix=fix)


class FailingLake:
    """A lake whose catalog answers with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def schemas(self) -> list[str]:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@pytest.mark.parametrize("action", Action)
def test_python_is_advised_in_python(action: Action) -> None:
    said = str(error_with(action))
    assert said.startswith("it is not there: ")
    assert not SQL.search(said)
    assert not COMMANDS.search(said)


@pytest.mark.parametrize("action", Action)
def test_sql_is_advised_in_sql(action: Action) -> None:
    with pytest.raises(tailrace.InvalidError, match="it is not there: ") as caught:
        run(FailingLake(error_with(action)), "SHOW SCHEMAS")  # type: ignore[arg-type]
    said = str(caught.value)
    assert not PYTHON.search(said)
    assert not COMMANDS.search(said)


@pytest.mark.parametrize("action", Action)
def test_the_command_line_is_advised_in_commands(
    action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise error_with(action)

    monkeypatch.setattr("tailrace.parts.catalog_of", fail)
    monkeypatch.setattr("tailrace.cli.printing.say", messages.append)
    monkeypatch.setattr(sys, "argv", ["tailrace", "tables", "--lake", "postgresql://nowhere/x"])
    with pytest.raises(SystemExit) as ended:
        main()
    (said,) = messages
    assert ended.value.code == 1
    assert said.startswith("error: it is not there: ")
    assert not PYTHON.search(said)
    assert not SQL.search(said)


@pytest.mark.parametrize("action", Action)
def test_what_a_job_keeps_of_an_error_belongs_to_no_language(action: Action) -> None:
    kept = message_of(error_with(action))
    assert kept.startswith("InvalidError: it is not there: ")
    assert not PYTHON.search(kept)
    assert not SQL.search(kept)
    assert not COMMANDS.search(kept)


def test_a_statement_on_the_command_line_is_advised_in_sql() -> None:
    error = error_with(Action.LIST_TABLES)
    with pytest.raises(tailrace.InvalidError):
        run(FailingLake(error), "SHOW SCHEMAS")  # type: ignore[arg-type]
    from tailrace.cli.printing import message_of as on_the_command_line

    assert on_the_command_line(error) == "it is not there: SHOW TABLES lists what there is"


def test_an_argument_is_named_only_to_those_who_call_in_python(tmp_path: Path) -> None:
    name = "n" * 300
    with tailrace.connect(tmp_path / "lake") as lake:
        with pytest.raises(tailrace.InvalidError) as in_python:
            lake.create_schema(name)
        with pytest.raises(tailrace.InvalidError) as in_sql:
            lake.sql(f"CREATE SCHEMA {name}")
    expected = "a name of 1 to 255 characters, not 'nnn"
    assert str(in_python.value).startswith(f"lake.create_schema(name=…) takes {expected}")
    assert str(in_sql.value).startswith(f"expected {expected}")
    from tailrace.cli.printing import message_of as on_the_command_line

    assert on_the_command_line(in_python.value).startswith(f"expected {expected}")


def test_names_are_quoted_as_each_language_does() -> None:
    error = tailrace.InvalidError("not built", fix=Fix(Action.BUILD_VIEW, "main.it's here"))
    from tailrace.cli.printing import in_commands
    from tailrace.sql.diagnostics import in_sql

    assert error.said(in_sql) == "not built: REFRESH MATERIALIZED VIEW main.`it's here` builds it"
    assert "tailrace refresh 'main.it'\"'\"'s here' builds it" in error.said(in_commands)
    schema = tailrace.NotFoundError("no schema", fix=Fix(Action.CREATE_SCHEMA, "it's {0}"))
    assert str(schema) == 'no schema: lake.create_schema("it\'s {0}")'
    assert schema.said(in_sql) == "no schema: CREATE SCHEMA `it's {0}`"
    assert schema.said(in_plain_words) == "no schema: create the schema it's {0}"


@pytest.mark.parametrize(
    "error",
    [
        error_with(Action.BUILD_INDEX),
        tailrace.NotFoundError("nothing"),
        tailrace.CommitUnknownError("abc"),
        tailrace.InvalidError("expected 1", for_callers="lake.find(limit=…) takes 1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling(error: TailraceError) -> None:
    from tailrace.sql.diagnostics import in_sql

    for _ in range(2):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.fix) == (type(error), str(error), error.fix)
        error.use(in_sql)


def test_a_lost_commit_says_how_to_ask() -> None:
    error = tailrace.CommitUnknownError("abc")
    assert error.transaction_id == "abc"
    assert str(error).endswith("before trying again, ask lake.outcome('abc')")


def test_an_option_is_named_as_each_language_does() -> None:
    from tailrace.cli.printing import in_commands

    error = tailrace.InvalidError("it is wrong", fix=Fix(Action.CHANGE_OPTION, "on_error"))
    assert str(error) == "it is wrong: change on_error"
    assert error.said(in_commands) == "it is wrong: change --on-error"
    assert error.said(in_plain_words) == "it is wrong: change the option on_error"


def test_a_message_of_several_lines_ends_with_what_to_do() -> None:
    error = tailrace.InvalidError("wrong:\n  this", fix=Fix(Action.UPSERT))
    assert str(error) == "wrong:\n  this\nuse upsert to replace rows"


def test_an_error_within_an_error_is_joined_by_a_semicolon() -> None:
    error = tailrace.InvalidError("t: these keys exist: 1", fix=Fix(Action.UPSERT))
    assert str(error) == "t: these keys exist: 1; use upsert to replace rows"
