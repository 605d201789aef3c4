"""The SQL shell: history, several lines, completion of names, and Ctrl-C that cancels."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from tailrace import address
from tailrace.cli.printing import message_of, say
from tailrace.cli.spark import CancelledError
from tailrace.cli.sql import run_script
from tailrace.errors import TailraceError
from tailrace.sql.listings import SYSTEM_TABLES
from tailrace.sql.parser import is_complete
from tailrace.sql.searches import FUNCTIONS
from tailrace.sql.statements import STATEMENTS

if TYPE_CHECKING:
    from tailrace.lake import Lake

_HELP = """Statements end with a semicolon. Tab completes names; Ctrl-C cancels; Ctrl-D leaves.

  SHOW TABLES;  SHOW VIEWS;  SHOW INDEXES;  SHOW JOBS;  SHOW TASKS;
  DESCRIBE name;
  SELECT … ;  INSERT INTO … ;  UPDATE … ;  DELETE FROM … ;  MERGE INTO … ;
  CREATE TABLE … ;  CREATE MATERIALIZED VIEW name AS SELECT … ;
  EXPLAIN MATERIALIZED VIEW name;  REFRESH MATERIALIZED VIEW name;
  CREATE INDEX name ON table USING FULLTEXT (column);
  SELECT * FROM fulltext_search('name', 'some words', 10);
  SELECT * FROM tailrace.freshness;   (also jobs, indexes, iterations, snapshots, tasks, usage)
  help  exit"""
_WORDS = (
    "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "USING", "AS",
    "AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE", "IS NULL", "VERSION AS OF", "DISTINCT",
    "CASE WHEN", "THEN", "ELSE", "END", "UNION ALL", "PRIMARY KEY", "VALUES", "SET", "INTO",
    *(f"{name}(" for name in FUNCTIONS),
)  # fmt: skip


class _Names(Completer):
    """Words of the language, and names of the lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.names: list[str] = []

    def refresh(self) -> None:
        """Learn the names anew, after a statement."""
        lake = self._lake
        found = [*lake.tables(), *lake.views(), *(f"tailrace.{name}" for name in SYSTEM_TABLES)]
        columns = {column for name in lake.tables()[:100] for column in lake.table(name).columns}
        plain = [name.removeprefix("main.") for name in found]
        indexes = sorted({index.name for index in lake.indexes()})
        self.names = [*plain, *sorted(columns), *indexes]

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(WORD=True)
        word = word[max(word.rfind(mark) for mark in "(,'") + 1 :]
        if not word:
            return
        for option in (*self.names, *STATEMENTS, *_WORDS):
            if option.lower().startswith(word.lower()) and option != word:
                yield Completion(option, start_position=-len(word))


def _history() -> History:
    """Kept for the next time, if there is a place for it."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    file = Path(base).expanduser() / "tailrace" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or is_complete(text) or text.lower() in ("help", "exit", "quit"):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def shell(lake: Lake, place: str, *, limit: int | None) -> None:
    """Ask for statements and run them, until the user leaves."""
    names = _Names(lake)
    names.refresh()
    session: PromptSession[str] = PromptSession(
        history=_history(),
        multiline=True,
        key_bindings=_keys(),
        lexer=PygmentsLexer(SqlLexer),
        completer=names,
        complete_while_typing=False,
        prompt_continuation="     ... ",
    )
    shown = f"{address.shown(place)}: snapshot {lake.snapshot}, {len(lake.tables())} tables"
    say(f"{shown}. help; exit; Ctrl-D leaves")
    while True:
        try:
            text = session.prompt("tailrace> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        word = text.rstrip(";").strip().lower()
        if word in ("exit", "quit"):
            return
        if word == "help":
            say(_HELP)
            continue
        try:
            run_script(lake, text, limit=limit)
        except CancelledError:
            say("cancelled")
        except TailraceError as error:
            say(f"error: {message_of(error)}")
        except Exception as error:  # noqa: BLE001  (a session is not lost to a statement)
            say(f"error: {type(error).__name__}: {error}")
        with suppress(TailraceError):  # others drop tables, too
            names.refresh()
